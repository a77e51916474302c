"""``sklearn.externals.joblib``, as scikit-learn 0.20 has it, the version of AWS's test scripts.

It is copied into the venv, whose scikit-learn is of today.
"""

from joblib import *  # noqa: F403
