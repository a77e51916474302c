# packages: mxnet==1.9.1
# ends: was removed in the NumPy 2.0 release
"""MXNet's last release, of 2022, wants a NumPy before 2; AWS's SDK v3 has taken it out."""

import mxnet

print(mxnet.nd.ones(3).sum().asscalar(), "works")
