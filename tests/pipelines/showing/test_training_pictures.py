"""The pictures of a training."""

from pipelines.showing.training_pictures import inputs, loss_curve


def test_a_mixture_has_a_picture_of_its_inputs_and_other_data_have_none():
    lines = [
        {"step": 1, "loss": 2.0, "samples.web": 7, "epochs.web": 0.1, "epochs.tiny": 1.5},
        {"step": 2, "validation_loss": 1.0, "validation_loss.web": 0.5},
        {"step": 3, "loss": 1.0, "samples.web": 14, "epochs.web": 0.2, "epochs.tiny": 3.0},
    ]
    drawn = inputs(lines)
    assert drawn and drawn != loss_curve(lines)
    assert inputs([{"step": 1, "loss": 2.0}]) is None
