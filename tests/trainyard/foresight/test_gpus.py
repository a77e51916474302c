from trainyard.foresight.gpus import GPUS


def test_every_device_is_whole():
    for gpu in GPUS.values():
        assert min(gpu.bf16_tflops, gpu.memory_gib, gpu.bandwidth_tb_s, gpu.node_gbps) > 0
        assert gpu.guessed <= {name for name in gpu.__slots__}
