"""The errors of ``sagemaker_containers._errors`` that requests can cause."""


class ClientError(Exception):
    """An error in what the user sent or wrote, as opposed to an error in the framework."""


class UnsupportedFormatError(Exception):
    """The framework neither reads nor writes the content type."""

    def __init__(self, content_type: object, **more: object) -> None:
        self.message = (
            f"Content type {content_type} is not supported by this framework.\n\n"
            "Please implement input_fn to to deserialize the request data or an output_fn to\n"
            "serialize the response. For more information, see the SageMaker Python SDK README."
        )
        super().__init__(self.message, **more)
