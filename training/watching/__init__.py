"""Rules that watch a training run: each is a pure function of the metric lines that the run logs.

They replace SageMaker's Debugger, which worked on tensors sent to S3 until it was closed to new
customers, and use only what a training run logs anyway (``training.watching.metric_line``):

    step=120 watch.data_bottleneck=0.62 threshold=0.5 action=warn: what it means; what to do

rules/              one module per rule, and nothing else
watch_rule.py       what a rule consists of
watcher.py          the recipe's section ``train.watch``; when a rule reports, and when again
step_progress.py    a run's own metric lines, with a number that a rule needs from the device

The rules' memory is the history of the metric lines, which is saved with each checkpoint and read
back up to the resumed step. So a restarted training continues with the same memory, and repeats no
report. ``python -m training.watching`` reads the lines of a script that has its own loop.
"""
