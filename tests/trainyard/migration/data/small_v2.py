import sagemaker
from sagemaker.estimator import Estimator
from sagemaker.inputs import TrainingInput
from sagemaker.model import Model
from sagemaker.processing import ProcessingInput, ProcessingOutput
from sagemaker.sklearn.processing import SKLearnProcessor
from sagemaker.workflow.model_step import ModelStep
from sagemaker.workflow.parameters import ParameterString
from sagemaker.workflow.pipeline import Pipeline
from sagemaker.workflow.pipeline_context import PipelineSession
from sagemaker.workflow.steps import ProcessingStep, TrainingStep

session = PipelineSession()
role = "arn:aws:iam::123456789012:role/any"
data = ParameterString(name="Data", default_value="s3://bucket/data")
processor = SKLearnProcessor(
    framework_version="1.2-1",
    role=role,
    instance_type="ml.m5.large",  # small
    instance_count=1,
    sagemaker_session=session,
)
prepare = ProcessingStep(
    name="Prepare",
    step_args=processor.run(
        inputs=[ProcessingInput(source=data, destination="/opt/ml/processing/input")],
        outputs=[ProcessingOutput(output_name="train", source="/opt/ml/processing/train")],
        code="s3://bucket/code/prepare.py",
    ),
)
image = sagemaker.image_uris.retrieve("xgboost", region="us-east-1", version="1.7-1")
training = "123456789012.dkr.ecr.us-east-1.amazonaws.com/mine:1"
estimator = Estimator(
    training, role, 1, "ml.m5.large", output_path="s3://bucket/models", sagemaker_session=session
)
estimator.set_hyperparameters(num_round=5, silent=True)
train = TrainingStep(
    name="Train",
    step_args=estimator.fit(
        {
            "train": TrainingInput(
                prepare.properties.ProcessingOutputConfig.Outputs["train"].S3Output.S3Uri,
                content_type="text/csv",
            )
        }
    ),
)
model = Model(
    image_uri=image,
    model_data=train.properties.ModelArtifacts.S3ModelArtifacts,
    role=role,
    sagemaker_session=session,
)
register = ModelStep(
    name="Register",
    step_args=model.register(
        content_types=["text/csv"], response_types=["text/csv"], model_package_group_name="group"
    ),
)
pipeline = Pipeline("Small", parameters=[data], steps=[prepare, train, register])
pipeline.upsert(role_arn=role)
