"""``python sklearn_model.py SOCKET``: what ``serve`` is in AWS's scikit-learn images.

The user's ``model_fn`` loads the model; without a ``predict_fn`` its ``predict`` is called with
what the toolkit makes of CSV, JSON or NPY.
"""

import toolkit  # type: ignore[import-not-found]

if __name__ == "__main__":
    toolkit.serve(lambda data, model: model.predict(data))
