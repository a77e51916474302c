code=$PWD && cd "$(mktemp -d)" && ln -s "$SM_CHANNEL_TRAINING" data && python3 "$code/transformer.py" &&
cp lightning_logs/version_0/checkpoints/*.ckpt "$SM_MODEL_DIR/model.ckpt"
