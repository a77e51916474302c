"""How often `trainyard why` names the right cause of steps that really fail.

``drawn.csv`` keeps sources, expected classes and verdicts of 946 quoted failures, not their texts.
Up to the seventeenth draw the verdict is that of the table as it is now, of the later draws the one
when they were asked for the first time.
"""
