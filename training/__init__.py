"""Code that runs on the cluster. Nothing here imports SageMaker's SDK, boto3, or the steps.

config.py, layout.py  the loop's settings (no torch: recipes are checked with them)
identity.py           the inputs that a training run's weights depend on
session.py            one training run as a rank executes it: build, run, export
loop.py               the training loop; optimizers.py: AdamW, LAMB, schedules, averaged weights
step_numbers.py       a step's numbers, read from the device on demand
agreed_stop.py        all ranks stop after the same step; in_place_restart.py: restarts
data/                 shards: manifest, writer, reader, the order of samples
workloads/            what is trained: samples from records, model, loss, metrics, baselines
defaults/             scores, operations and a baseline for workloads that define none
weights/              what a training run starts from: fresh values, checkpoints, base models, LoRA
tools/                commands for users; none of this code counts for the identity
strategies/           how ranks share a step: single, DDP, the mesh, DeepSpeed, SMDDP, SMP
checkpoint/           sharded checkpoints; the newest complete one is resumed
watching/             metric lines, trackers, the watchdog, and rules that warn or stop the run
export/               the exported model, and the code that responds to requests
"""
