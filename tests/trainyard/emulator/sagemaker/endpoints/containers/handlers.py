"""A table of default handlers: container, request, and the answer of AWS's container.

The sources, with the paths that decide each part:

- ``xgboost …``: aws/sagemaker-xgboost-container, src/sagemaker_xgboost_container,
  algorithm_mode/serve.py and serve_utils.py, data_utils.py (``get_content_type``); 3.0-5 at the
  main branch, 1.0-1 at the tag v1.0-1.
- ``xgboost script``: serving.py and encoder.py of the same, and aws/sagemaker-containers,
  src/sagemaker_containers: _transformer.py, _worker.py, _encoders.py.
- ``sklearn``: aws/sagemaker-scikit-learn-container, src/sagemaker_sklearn_container/serving.py, and
  aws/sagemaker-containers as above.
- ``pytorch``: aws/sagemaker-pytorch-inference-toolkit, default_pytorch_inference_handler.py, which
  is installed, and so is aws/sagemaker-inference-toolkit (transformer.py, decoder.py, encoder.py).
"""

import io
from dataclasses import dataclass
from typing import Any

import numpy as np

NAN = float("nan")
PAGE = "rror: "  # the name of an exception, and its message
"""Answer of flask to an exception."""
UNSUPPORTED = "is not supported by this framework"
CSV, JSON, NPY = "text/csv", "application/json", "application/x-npy"
TEXT = "text/csv; charset=utf-8"


def npy(values: Any, dtype: str = "float64") -> bytes:
    file = io.BytesIO()
    np.save(file, np.array(values, dtype))
    return file.getvalue()


@dataclass(frozen=True)
class Row:
    """A request and its answer."""

    container: str
    content_type: str | None
    accept: str | None
    body: bytes
    status: int
    answer: Any
    """Part of a refusal's text; otherwise the array that the model gets."""

    sent: str = ""
    """Content type of the answer, if it is a prediction."""

    @property
    def name(self) -> str:
        body = self.body[:24].decode(errors="replace").replace("\n", "|").replace("\x00", "")
        return f"{self.container}: {self.content_type} {body!r} as {self.accept}"


def _rows(container: str, *rows: tuple) -> list[Row]:
    made = []
    for kind, accept, body, status, answer, *sent in rows:
        data = body.encode() if isinstance(body, str) else body
        made.append(Row(container, kind, accept, data, status, answer, *sent))
    return made


ONE, TWO = [[1, 2, 3]], [[1, 2, 3], [4, NAN, 6]]
NOT_ACCEPTED = (
    "Accept type image/png is not supported. Please use supported accept types: "
    "['application/json', 'application/jsonlines', 'application/x-recordio-protobuf', 'text/csv']."
)
NOT_CSV, NOT_LIBSVM = "ensure data is in csv format", "ensure data is in libsvm format"
XGBOOST = _rows(
    "xgboost 3.0-5",
    # CSV
    (CSV, None, "1,2,3\n4,,6\n", 200, TWO, TEXT),
    ("csv", None, "1,2,3", 200, ONE, TEXT),
    ("TEXT/CSV; charset=utf-8", None, "1,2,3", 200, ONE, TEXT),
    ("text/csv; label_size=1", None, "1,2,3", 200, ONE, TEXT),
    ("text/csv; label_size=0", None, "1,2,3", 415, "label_size must be equal to 1"),
    (CSV, None, "1;2;3", 200, ONE, TEXT),
    (CSV, None, "1\t2\t3\r\n4\t5\t6\r\n", 200, [[1, 2, 3], [4, 5, 6]], TEXT),
    (CSV, None, "1,2.5,3", 200, [[1, 2.5, 3]], TEXT),
    (CSV, None, "a,b,c\n1,2,3", 415, NOT_CSV),
    (CSV, None, '"1","2","3"', 415, NOT_CSV),
    (CSV, None, "1,2,3\n4,5", 415, NOT_CSV),
    (CSV, None, "1,2,3\n\n4,5,6", 415, NOT_CSV),
    (CSV, None, b"\xff,2,3", 415, NOT_CSV),
    (CSV, None, " \n", 415, NOT_CSV),
    (CSV, None, "", 204, ""),
    (CSV, None, "1,2", 200, [[1, 2, NAN]], TEXT),  # no pickle: XGBoost takes fewer columns
    (CSV, None, "1,2,3,4", 400, "Unable to evaluate payload provided"),
    # libsvm
    ("text/libsvm", None, "0:1 2:3", 200, [[1, NAN, 3]], TEXT),
    ("text/x-libsvm", None, "5 1:1 3:3\n7 2:2", 200, [[1, NAN, 3], [NAN, 2, NAN]], TEXT),
    ("libsvm", None, "0:1 1:2 2:3", 200, ONE, TEXT),
    (None, None, "0:1 1:2 2:3", 200, ONE, TEXT),
    (None, None, "1,2,3", 415, NOT_LIBSVM),
    ("text/libsvm", None, "0:1 x:3", 415, NOT_LIBSVM),
    ("text/libsvm", None, "0:1 1:a", 415, NOT_LIBSVM),
    ("text/libsvm", None, "0:1 3:4", 400, "Unable to evaluate payload provided"),
    # other types
    ("", None, "0:1", 415, "is not an accepted ContentType"),
    (
        *(JSON, None, "[[1, 2, 3]]", 415),
        "application/json is not an accepted ContentType: csv, libsvm, parquet, recordio-protobuf, "
        "text/csv, text/libsvm, text/x-libsvm, application/x-parquet, "
        "application/x-recordio-protobuf.",
    ),
    ("application/jsonlines", None, "[1, 2, 3]", 415, "is not an accepted ContentType"),
    (NPY, None, npy(ONE), 415, "application/x-npy is not an accepted ContentType"),
    ("image/png", None, "x", 415, "image/png is not an accepted ContentType"),
    ("application/x-www-form-urlencoded", None, "1,2,3", 204, ""),
    ("application/x-parquet", None, "PAR1", 415, "application/x-parquet is not supported."),
    ("application/x-recordio-protobuf", None, "x", 415, "application/x-recordio-protobuf"),
    # answers
    (CSV, "*/*", "1,2,3", 200, ONE, TEXT),
    (CSV, "text/csv;q=0.5", "1,2,3", 200, ONE, TEXT),
    (CSV, JSON, "1,2,3\n4,,6", 200, TWO, JSON),
    (CSV, "Application/JSON", "1,2,3", 200, ONE, JSON),
    (CSV, "application/json;q=0.9", "1,2,3", 200, ONE, JSON),
    (CSV, "application/jsonlines", "1,2,3", 500, PAGE),
    (CSV, "application/x-recordio-protobuf", "1,2,3", 500, PAGE),
    (CSV, "image/png", "1,2,3", 406, NOT_ACCEPTED),
    (CSV, "text/csv, application/json", "1,2,3", 406, "Accept type text/csv, application/json"),
    (CSV, "image/png", "1,2,3,4", 400, "Unable to evaluate payload provided"),
    (CSV, "image/png", "a,b,c", 415, NOT_CSV),
    (CSV, None, b"1,2,3\n" * (1 << 20) + b"1,2,3", 413, "larger than MAX_CONTENT_LENGTH"),
)
OLD = _rows(
    "xgboost 1.0-1",
    (CSV, None, "1,2,3\n4,,6\n", 200, TWO, TEXT),
    (CSV, JSON, "1,2,3", 200, ONE, TEXT),
    (CSV, "image/png", "1,2,3", 200, ONE, TEXT),
    (CSV, None, "1,2", 200, [[1, 2, NAN]], TEXT),
    (
        *(CSV, None, "1", 400),
        "Unable to evaluate payload provided: Feature size of csv inference data 1 is not "
        "consistent with feature size of trained model 3.",
    ),
    (CSV, None, "1,2,3,4", 400, "Feature size of csv inference data 4 is not consistent"),
    ("text/libsvm", None, "0:1 1:2 2:3", 200, ONE, TEXT),
    ("text/libsvm", None, "1:1 2:2 3:3", 200, [[NAN, 1, 2]], TEXT),  # 3 is one feature more
    ("text/libsvm", None, "0:1", 200, [[1, NAN, NAN]], TEXT),
    (
        *("text/libsvm", None, "4:1", 400),
        "Feature size of libsvm inference data 5 is larger than feature size of trained model 3.",
    ),
)
XGBOOST_SCRIPT = _rows(
    "xgboost script",
    (CSV, None, "1,2,3\n4,,6", 200, TWO, JSON),
    (CSV, None, "1,2,3\n", 500, PAGE),  # the last line is empty
    ("text/csv; charset=utf-8", CSV, "1,2,3", 200, ONE, TEXT),
    ("TEXT/CSV", None, "1,2,3", 500, PAGE),
    ("csv", None, "1,2,3", 500, PAGE),
    (CSV, None, "a,b,c\n1,2,3", 500, PAGE),
    (CSV, None, "", 500, PAGE),
    ("text/libsvm", None, "5 1:1 3:3", 200, [[1, 0, 3]], JSON),
    ("text/x-libsvm", NPY, "0:1 2:3\n\n1:2", 200, [[1, 0, 3], [0, 0, 0], [0, 2, 0]], NPY),
    (JSON, None, "[[1, 2, 3]]", 500, PAGE),
    (None, None, "[[1, 2, 3]]", 500, PAGE),  # without a type it is JSON
    ("application/x-recordio-protobuf", None, "x", 500, PAGE),
    ("application/x-parquet", None, "PAR1", 500, PAGE),
    (CSV, "*/*", "1,2,3", 200, ONE, JSON),
    (CSV, "application/json;q=0.9", "1,2,3", 500, PAGE),
    (CSV, "image/png", "1,2,3", 500, PAGE),
)
SKLEARN = _rows(
    "sklearn",
    (CSV, NPY, "1,2.5\n3,4\n", 200, np.float32([[1, 2.5], [3, 4]]), NPY),
    (CSV, CSV, "1,2.5\n3,4", 200, np.float32([[1, 2.5], [3, 4]]), TEXT),
    (CSV, None, '"1","2"\n3,4', 200, np.float32([[1, 2], [3, 4]]), JSON),
    (CSV, None, "1,2\r\n3,4\r\n", 200, np.float32([[1, 2], [3, 4]]), JSON),
    (CSV, None, "1,2,3", 500, PAGE),  # one row is a vector, which scikit-learn refuses
    (CSV, None, "1\n2\n3", 500, PAGE),
    (CSV, None, "1,\n3,4", 500, PAGE),
    (CSV, None, "a,b\n1,2", 500, PAGE),
    (CSV, None, "1;2\n3;4", 500, PAGE),
    (CSV, None, "1,2\n3", 500, PAGE),
    (CSV, None, '"1,2\n3,4', 500, PAGE),
    (CSV, None, "", 500, PAGE),
    (CSV, None, b"\xff,1\n1,2", 500, PAGE),
    ("text/csv; charset=utf-8", None, "1,2\n3,4", 500, PAGE),
    ("TEXT/CSV", None, "1,2\n3,4", 500, PAGE),
    (JSON, NPY, "[[1, 2.5], [3, 4]]", 200, np.float32([[1, 2.5], [3, 4]]), NPY),
    (None, None, "[[1, 2]]", 200, np.float32([[1, 2]]), JSON),
    (JSON, None, '{"instances": [[1, 2]]}', 500, PAGE),
    (JSON, None, "[[1, 2", 500, PAGE),
    (JSON, None, "[[1, null]]", 500, PAGE),
    (NPY, NPY, npy([[1, 2]], "int16"), 200, np.int16([[1, 2]]), NPY),
    (NPY, NPY, npy([[1, 2]]), 200, np.float64([[1, 2]]), NPY),
    (NPY, None, "x", 500, PAGE),
    ("text/libsvm", None, "0:1", 500, PAGE),
    ("application/jsonlines", None, "[1, 2]", 500, PAGE),
    ("application/x-recordio-protobuf", None, "x", 500, PAGE),
    ("application/x-parquet", None, "PAR1", 500, PAGE),
    (JSON, "*/*", "[[1, 2]]", 200, np.float32([[1, 2]]), JSON),
    (JSON, "application/json;q=0.9", "[[1, 2]]", 500, PAGE),
    (JSON, "text/csv, application/json", "[[1, 2]]", 500, PAGE),
    (JSON, "Text/CSV", "[[1, 2]]", 500, PAGE),
    (JSON, "image/png", "[[1, 2]]", 500, PAGE),
)
PYTORCH = _rows(
    "pytorch",
    (JSON, None, "[[1, 2.5], [3, 4]]", 200, [[1, 2.5], [3, 4]], JSON),
    (JSON, CSV, "[[1, 2.5], [3, 4]]", 200, [[1, 2.5], [3, 4]], CSV),
    (CSV, None, "1,2.5\n3,4.5\n", 500, "numpy.void"),  # the toolkit's genfromtxt types by column
    (CSV, None, "1.5,2.5\n3,4\n", 200, [[1.5, 2.5], [3, 4]], JSON),
    (CSV, None, "1,2,3", 200, [1, 2, 3], JSON),
    (CSV, NPY, "1,\n3,4", 200, [[1, -1], [3, 4]], NPY),  # and a gap among whole numbers is -1
    (CSV, NPY, "1.5,\n3,4.5", 200, [[1.5, NAN], [3, 4.5]], NPY),
    (CSV, None, "a,b\n1,2", 500, "numpy.str_"),
    (NPY, NPY, npy([[1, 2]], "int16"), 200, [[1, 2]], NPY),
    (JSON, "image/png, application/json", "[[1, 2]]", 200, [[1, 2]], "image/png, application/json"),
    (JSON, "*/*", "[[1, 2]]", 200, [[1, 2]], JSON),
    (JSON, None, "[[1, 2", 500, "JSONDecodeError"),
    (JSON, None, '{"inputs": [1]}', 500, "Traceback"),
    (JSON, None, "", 500, "JSONDecodeError"),
    ("text/csv; charset=utf-8", None, "1,2", 500, UNSUPPORTED),
    ("TEXT/CSV", None, "1,2", 500, UNSUPPORTED),
    (None, None, "[[1, 2]]", 500, UNSUPPORTED),
    ("text/libsvm", None, "0:1", 500, UNSUPPORTED),
    ("application/jsonlines", None, "[1, 2]", 500, UNSUPPORTED),
    ("application/x-parquet", None, "PAR1", 500, UNSUPPORTED),
    (JSON, "application/json;q=0.9", "[[1, 2]]", 500, UNSUPPORTED),
    (JSON, "Text/CSV", "[[1, 2]]", 500, UNSUPPORTED),
    (JSON, "image/png", "[[1, 2]]", 500, UNSUPPORTED),
)
ROWS = [*XGBOOST, *OLD, *XGBOOST_SCRIPT, *SKLEARN, *PYTORCH]
