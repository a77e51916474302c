"""A user's pipeline with the SageMaker SDK v3: AWS's own classes, a script and a step."""

from pathlib import Path

from sagemaker.core.processing import ScriptProcessor
from sagemaker.core.shapes import ProcessingOutput, ProcessingS3Output
from sagemaker.core.workflow.pipeline_context import PipelineSession
from sagemaker.mlops.workflow.pipeline import Pipeline
from sagemaker.mlops.workflow.steps import ProcessingStep

ROLE = "arn:aws:iam::123456789012:role/service-role/AmazonSageMaker-ExecutionRole"
IMAGE = "683313688378.dkr.ecr.us-east-1.amazonaws.com/sagemaker-scikit-learn:1.2-1-cpu-py3"
OUT = "/opt/ml/processing/out"

session = PipelineSession()
Path("say.py").write_text(f"open('{OUT}/said.txt', 'w').write('hello from the SDK')\n")
processor = ScriptProcessor(
    image_uri=IMAGE,
    command=["python3"],
    instance_type="ml.m5.large",
    instance_count=1,
    base_job_name="say",
    role=ROLE,
    sagemaker_session=session,
)
said = ProcessingS3Output(
    s3_uri=f"s3://{session.default_bucket()}/said", local_path=OUT, s3_upload_mode="EndOfJob"
)
arguments = processor.run(
    code="say.py", outputs=[ProcessingOutput(output_name="said", s3_output=said)]
)
pipeline = Pipeline(
    name="say", steps=[ProcessingStep(name="Say", step_args=arguments)], sagemaker_session=session
)
pipeline.upsert(role_arn=ROLE)
print(pipeline.start_pipeline().arn)
