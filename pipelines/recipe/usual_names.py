"""Names that other frameworks have for a recipe's fields; an error about one says ours."""

_OTHERS = {
    # train.loop: PyTorch, Hugging Face's TrainingArguments, Lightning's Trainer, nanoGPT, Megatron
    "global_batch": "batch_size train_batch_size total_batch_size global_batch_size batch",
    "micro_batch": "per_device_train_batch_size micro_batch_size per_device_batch_size mbs "
    "per_gpu_train_batch_size train_micro_batch_size_per_gpu device_batch_size "
    "gradient_accumulation_steps accumulate_grad_batches grad_accum grad_accum_steps",
    "max_steps": "epochs num_epochs max_epochs num_train_epochs n_epochs steps num_steps max_iters "
    "total_steps max_train_steps train_steps train_iters iterations num_iterations",
    "learning_rate": "lr peak_lr max_lr base_lr learning_rate_init step_size",
    "warmup_steps": "warmup warmup_ratio num_warmup_steps lr_warmup_steps warmup_iters lr_warmup",
    "weight_decay": "wd decay l2 weight_decay_rate",
    "schedule": "lr_scheduler lr_scheduler_type scheduler lr_schedule",
    "min_learning_rate_ratio": "min_lr eta_min min_lr_ratio",
    "decay_share": "decay_steps decay_ratio lr_decay_iters",
    "grad_clip": "max_grad_norm gradient_clip_val clip_grad clip_grad_norm gradient_clipping",
    "beta1": "adam_beta1 betas",
    "beta2": "adam_beta2",
    "optimizer": "optim",
    "ema_decay": "ema",
    "precision": "fp16 bf16 dtype amp mixed_precision torch_dtype",
    "seed": "random_seed random_state data_seed",
    "validation_interval": "eval_steps eval_interval val_check_interval eval_every",
    "validation_samples": "eval_samples eval_iters max_eval_samples limit_val_batches",
    "checkpoint_interval": "save_steps save_interval checkpoint_every save_every",
    "keep_checkpoints": "save_total_limit save_top_k",
    "log_interval": "logging_steps log_every_n_steps log_every logging_interval",
    "loader_threads": "num_workers dataloader_num_workers",
    "activation_checkpointing": "gradient_checkpointing recompute",
    "compile": "torch_compile",
    "strategy": "distribution backend parallelism",
    "tensor_parallel": "tp tensor_parallel_size tensor_model_parallel_size",
    "pipeline_parallel": "pp pipeline_parallel_size pipeline_model_parallel_size",
    "context_parallel": "cp context_parallel_size",
    "zero_stage": "zero_optimization",
    # train: SageMaker's SDK, torchrun, Lightning
    "instance_count": "num_nodes nnodes nodes instances num_machines",
    "processes_per_node": "nproc_per_node devices gpus gpus_per_node num_processes processes",
    "volume_gb": "volume_size volume_size_in_gb disk_gb",
    "max_runtime_minutes": "max_run max_runtime max_runtime_in_seconds timeout",
    "max_wait_minutes": "max_wait",
    "spot": "use_spot_instances use_spot",
    "keep_alive_minutes": "keep_alive_period_in_seconds keep_alive",
    "arguments": "hyperparameters hyper_parameters args",
    "script": "entry_point entrypoint entry_script",
    "source": "source_dir code",
    "environment": "env",
    # aws, register
    "role": "role_arn execution_role iam_role",
    "kms_key": "kms_key_id kms output_kms_key",
    "bucket": "s3_bucket default_bucket",
    "model_package_group": "model_package_group_name group",
    "approval": "model_approval_status",
    # workload.config of a language model: Hugging Face's configurations, nanoGPT
    "context_length": "seq_len seq_length sequence_length max_seq_length block_size n_ctx "
    "max_position_embeddings context_size",
    "layers": "n_layers num_layers num_hidden_layers n_layer depth",
    "heads": "n_heads num_heads num_attention_heads n_head",
    "kv_heads": "n_kv_heads num_key_value_heads",
    "dim": "hidden_size d_model n_embd embed_dim model_dim",
    "hidden_dim": "intermediate_size ffn_dim d_ff",
}
NAMES = {name: field for field, names in _OTHERS.items() for name in names.split()}
"""Name elsewhere → the recipe's field."""

_EPOCHS = ": it counts optimizer steps, epochs × samples / global_batch"
_ACCUMULATION_NOTE = (
    ": steps accumulate by themselves, global_batch / (micro_batch × data-parallel ranks)"
)
_OF_STEPS = ": it counts optimizer steps, the ratio × max_steps"
REMARKS = {
    **{name: _EPOCHS for name in _OTHERS["max_steps"].split() if "epoch" in name},
    **{name: _ACCUMULATION_NOTE for name in _OTHERS["micro_batch"].split() if "accum" in name},
    **{name: _OF_STEPS for name in ("warmup_ratio",)},
}
"""Name elsewhere → how our field differs, where its value does not mean the same."""
