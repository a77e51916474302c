"""``python pytorch_model.py SOCKET``: what ``serve`` is in AWS's PyTorch images, but one part.

There ``serve`` installs ``code/requirements.txt`` and starts TorchServe, whose Java front end hands
every request to AWS's inference toolkit. Here the toolkit is AWS's own
(``sagemaker-pytorch-inference``, the very handler that TorchServe is told to load), and
``http_front`` stands in for the front end.
"""

import http_front  # type: ignore[import-not-found]
import toolkit  # type: ignore[import-not-found]


def main() -> None:
    http_front.prepare(http_front.MODEL / "code")
    from sagemaker_pytorch_serving_container import (  # type: ignore[import-untyped]
        handler_service,
    )

    toolkit.serve_service(handler_service.HandlerService())


if __name__ == "__main__":
    main()
