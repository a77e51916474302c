"""Others' loops on our shards: their losses, their interruptions, their cost: python -m benchmarks.trainer"""
