"""Rules that watch a training while it runs: each a pure function over the lines that it logs.

What SageMaker's Debugger did with tensors that were sent to S3, until it was closed to new
customers, is done here with what a training says of itself anyway
(``training.watching.metric_line``):

    step=120 watch.exploding_gradients=53.2 threshold=20 action=warn: what it means; what to do

rules/       one module a rule; a rule is found by being there
rule.py      what a rule is
watcher.py   the recipe's section ``train.watch``; when a rule speaks, and when again
updates.py   what is asked of the device for them, at logged steps only (the only one with torch)

The rules' memory is the history of the metric lines, which is saved with each checkpoint and read
back up to the step that is resumed: a restart goes on where the memory was, and repeats nothing.
``python -m training.watching`` reads the lines of a script that has a loop of its own.
"""
