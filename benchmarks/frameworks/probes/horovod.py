# packages: horovod==0.28.1
# environment: HOROVOD_WITH_PYTORCH=1 HOROVOD_WITHOUT_MPI=1 HOROVOD_WITHOUT_TENSORFLOW=1
# ends: C++17 or later
"""Horovod's only form is source, and it asks its compiler for C++14; torch's headers want more."""

import horovod.torch

horovod.torch.init()
print("works")
