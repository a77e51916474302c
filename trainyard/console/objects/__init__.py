"""Objects in S3, as far as a page shows them: a bounded listing, and the beginning of one.

Whoever made an object may want harm: it is shown as text, or as a picture of four known formats.
"""
