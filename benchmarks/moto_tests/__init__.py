"""moto's own tests against the emulator, over HTTP.

python -m benchmarks.moto_tests CHECKOUT
"""
