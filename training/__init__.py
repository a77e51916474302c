"""What runs on the cluster. Nothing here imports SageMaker's SDK, boto3, or the steps.

config.py      the loop's settings (no torch: recipes are checked with it)
metric_line.py the metric line, and the expressions that SageMaker reads it with (no torch)
data/          shards: manifest, writer, reader, the order of samples
workloads/     what is trained: records → samples, model, loss, metrics, baselines
strategies/    how ranks share a step: single, DDP, the mesh, DeepSpeed, SMDDP, SMP
session.py     one training on a rank: built, run, handed on
loop.py        the training loop; optimizers.py: AdamW, LAMB, schedules, averaged weights;
clock.py       where a step's time goes, and traces of it; devices.py: a device's peak, and memory
reports.py     metric lines and their history; trackers.py: TensorBoard, MLflow;
               metrics_page.py: Prometheus
checkpoint.py  sharded checkpoints, the newest complete one is resumed; checkpoints/: how they are
               written and read
restart.py     which attempt under torchrun this is; watchdog.py: who is missing
artifact.py    the model as it is handed on: safetensors plus config.json
exporting.py   its weights, written by many ranks; held.py: where they are until then; safe_file.py:
               a safetensors file, weight by weight
watching/      rules over what a training logs of itself, which warn or stop it
scaling.py     what more ranks bring: starts the job itself, travels with none
"""
