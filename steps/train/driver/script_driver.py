"""Run the driver that starts the ranks, pass SIGTERM on, and describe a user script's model.

This file is next to AWS's drivers in the container. Like them it needs only the standard library,
so that it runs in an image of any framework. AWS's driver starts the script itself, as usual. This
file adds files to /opt/ml/model/code, and never overwrites the script's own files. They are in a
folder because servers that take every file of the archive for a model (XGBoost's) ignore folders.

trainyard.json   what was run: script, arguments, code, data, processes, identity
packages.txt     the installed packages, as ``name==version`` lines
inference.py     the inference script, and the Python files next to it
"""

import contextlib
import hashlib
import json
import os
import runpy
import shutil
import signal
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import PackageNotFoundError, distributions, version
from pathlib import Path
from typing import Any

CODE = Path("/opt/ml/input/data/code")
CHANNELS = Path("/opt/ml/input/data")
MODEL = Path("/opt/ml/model")
CHECKPOINTS = Path("/opt/ml/checkpoints")
CHANNEL_FILE = Path("/opt/ml/input/config/inputdataconfig.json")
FAILURE = Path("/opt/ml/output/failure")
NAME = "trainyard.json"
NOTE = ".trainyard.json"
"""File in the checkpoint folder while a script runs. It names the training run to which the
checkpoints belong.
"""
RESERVED_CHANNELS = ("code", "sm_drivers")
BLOCK = 2**20  # bytes per read
NOTE_SECONDS = 0.5


def main() -> int:
    """Run the driver; return its exit status."""
    config = json.loads(os.environ["SM_DISTRIBUTED_CONFIG"])
    if "parts" not in config:  # Trainyard's own loop, which describes its model itself
        return start_driver(config, None)
    description = describe_training(config)
    note = load_resume_note(CHECKPOINTS, description)
    status = start_driver(config, note if is_first_node() else None)
    if status != 0 and not FAILURE.exists():  # a user's own driver may not have written it
        write_atomically(
            FAILURE, f"{description['script']} ended with exit status {status}; see the log"
        )
    if status == 0 and is_first_node() and (refusal := explain_bad_model(MODEL)):
        write_atomically(FAILURE, f"{description['script']} {refusal}")
        print(f"error: {description['script']} {refusal}", flush=True)
        return 1
    if status == 0 and is_first_node():
        add_description(MODEL, description | {"training": note["training"]}, config["inference"])
    return status


def describe_training(config: dict[str, Any]) -> dict[str, Any]:
    """Return the description of the training that is about to run.

    ``training`` contains the parts of its identity, and this run as its only stretch. A stretch is
    a part of a training run with the same code, data and number of processes.
    """
    channels = {
        name: summarize_channel(
            CHANNELS / name, read=mode == "File" and name not in config["mounted"]
        )
        for name, mode in read_input_modes().items()
    }
    hyperparameters = json.loads(os.environ["SM_HPS"])
    known_parts = config["parts"]
    search_values = {name: hyperparameters[name] for name in config["searched"]}
    arguments = {**known_parts["settings"]["arguments"], **search_values}
    parts = known_parts | {
        "settings": known_parts["settings"] | {"arguments": arguments},
        "code": {name: file_sha256(CODE / name) for name in list_files(CODE)},
        "data": json_sha256({name: channel["sha256"] for name, channel in channels.items()}),
        "torch": find_torch_release(),
    }
    identity, world = json_sha256(parts)[:16], count_processes(config)
    stretch = {
        "since": 0,
        "identity": identity,
        "code_sha256": json_sha256(parts["code"]),
        "data": parts["data"],
        "strategy": config["launcher"],
        "world_size": world,
    }
    return {
        "format": 1,
        "workload": parts["workload"],
        "script": os.environ["SM_ENTRY_SCRIPT"],
        "arguments": hyperparameters,
        "channels": channels,
        "train_fingerprint": parts["data"],
        "world_size": world,
        "training": {"identity": identity, "parts": parts, "stretches": [stretch]},
    }


def read_input_modes() -> dict[str, str]:
    """Return the input mode of each channel, without the channels that carry the code."""
    channel_config = json.loads(CHANNEL_FILE.read_bytes())
    return {
        name: channel_config[name].get("TrainingInputMode", "File")
        for name in sorted(channel_config)
        if name not in RESERVED_CHANNELS
    }


def summarize_channel(folder: Path, *, read: bool) -> dict[str, Any]:
    """Return a summary of a channel's files: number, bytes, and one hash (``sha256``) over them.

    The hash covers names and sizes, and with ``read`` also the contents. Contents are not read if
    the channel is streamed or a file system, because it may be too large to read twice.
    """
    file_names = list_files(folder)
    lines: dict[str, list] = {name: [(folder / name).stat().st_size] for name in file_names}
    if read:
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            hashes = pool.map(lambda name: file_sha256(folder / name), file_names)
            for name, sha256 in zip(file_names, hashes, strict=True):
                lines[name].append(sha256)
    return {
        "files": len(lines),
        "bytes": sum(line[0] for line in lines.values()),
        "contents": read,
        "sha256": json_sha256(lines),
    }


def list_files(folder: Path) -> list[str]:
    """Return the path of every file below the folder, relative to it and sorted."""
    paths = (Path(parent, name) for parent, _, inner in os.walk(folder) for name in inner)
    return sorted(path.relative_to(folder).as_posix() for path in paths)


def load_resume_note(folder: Path, description: dict[str, Any]) -> dict[str, Any]:
    """Return the note for this training run's checkpoints, and delete the local ones of other runs.

    The checkpoint folder's S3 prefix is named after what is known before the run, which does not
    include the data. So it may contain checkpoints of a run on other data; these are deleted
    from the local folder. The note is deleted, too, because scripts check whether the folder is
    empty. S3 keeps both, so ``hidden`` in the note lists the files to delete again next time.
    """
    path, own_training = folder / NOTE, description["training"]
    note = json.loads(path.read_bytes()) if path.is_file() else {}
    path.unlink(missing_ok=True)
    previous, hidden = note.get("training"), dict(note.get("hidden", {}))
    if previous and previous["identity"] != own_training["identity"]:
        hidden = {name: file_sha256(folder / name) for name in list_files(folder)}
        print(
            f"checkpoints: {len(hidden)} files are of training {previous['identity']}, but this "
            f"is {own_training['identity']}: other data, or another torch. It starts from the "
            "beginning",
            flush=True,
        )
    for name, sha256 in hidden.items():
        # With other content, it is a checkpoint that this training wrote under the same name.
        if (folder / name).is_file() and file_sha256(folder / name) == sha256:
            (folder / name).unlink()
    # Inner folders first, because their parents are empty only after that.
    for parent, _, _ in os.walk(folder, topdown=False):
        if Path(parent) != folder and not os.listdir(parent):
            os.rmdir(parent)
    if previous and previous["identity"] == own_training["identity"]:
        stretches = previous["stretches"]
        if stretches[-1] != own_training["stretches"][-1]:
            stretches = [*stretches, *own_training["stretches"]]
        own_training = own_training | {"stretches": stretches}
    return {"training": own_training, "hidden": hidden}


def start_driver(config: dict[str, Any], note: dict[str, Any] | None) -> int:
    """Run the driver in this process; return its exit status.

    By default SIGTERM would end this process, and the container ends with it. So a handler sends
    the signal to the driver's child processes, for which the driver waits.
    """
    signal.signal(signal.SIGTERM, lambda number, frame: forward_signal(number))
    if note is not None:
        threading.Thread(
            target=write_note_after_checkpoint, args=(CHECKPOINTS, note), daemon=True
        ).start()
    driver_folder = Path(__file__).parent
    is_own = config.get("launcher") == "own"
    driver = CODE / config["driver"] if is_own else driver_folder / config["driver"]
    # As Python does for a program, its own folder comes first. The second path allows a user's
    # driver to import common.utils, as AWS's drivers do.
    sys.path[:0] = [str(driver.parent), str(driver_folder.parent)]
    sys.argv = [str(driver)]
    try:
        runpy.run_path(str(driver), run_name="__main__")
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    return 0


def forward_signal(number: int) -> None:
    """Send the signal to the children of this process, or exit if there are none."""
    child_pids = list_child_pids(os.getpid())
    for child in child_pids:
        with contextlib.suppress(ProcessLookupError):  # it has ended in the meantime
            os.kill(child, number)
    if not child_pids:
        sys.exit(128 + number)


def list_child_pids(parent: int) -> list[int]:
    """Return the process ids of a process's living children.

    Processes may end while this runs. ``Path.glob`` would then raise ESRCH in the driver's signal
    handler, and the driver would kill the script instead of letting it save.
    """
    child_pids = []
    for number in filter(str.isdigit, os.listdir("/proc")):
        try:
            state, above = Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()[:2]
        except (OSError, ValueError):  # the process has ended
            continue
        if int(above) == parent and state != "Z":
            child_pids.append(int(number))
    return child_pids


def write_note_after_checkpoint(folder: Path, note: dict[str, Any]) -> None:
    """Write the note into the checkpoint folder once the script has written a checkpoint."""
    while not list_files(folder):
        time.sleep(NOTE_SECONDS)
    write_atomically(folder / NOTE, json.dumps(note))


def explain_bad_model(folder: Path) -> str | None:
    """Return the reason why ``folder`` contains no model, or None if it contains one.

    Without this check SageMaker would accept an empty folder, and the next steps would register it.
    Logs and files in code/, which belong to the inference script, do not count as a model.
    """
    file_names = list_files(folder)
    models = [
        name
        for name in file_names
        if not name.startswith("code/")
        and not name.endswith(".log")
        and "events.out.tfevents." not in name
        and (folder / name).is_file()  # not a broken link
        and (folder / name).stat().st_size
    ]
    if models:
        return None
    if file_names:
        holds = f"holds only {', '.join(file_names[:3])}{' …' * (len(file_names) > 3)}"
    else:
        holds = "is empty"
    return (
        f"saved no model: SM_MODEL_DIR ({folder}) {holds}; expected a file with the model's "
        "weights, outside of code/, not empty and not a log: save it in os.environ['SM_MODEL_DIR']"
    )


def add_description(model: Path, description: dict[str, Any], inference: str | None) -> None:
    """Add the description, the package list and the inference script to the model's folder."""
    code, lines = model / "code", list_packages()
    code.mkdir(parents=True, exist_ok=True)
    # If the script has written a file with this name, it is kept.
    free = not (code / "packages.txt").exists()
    write_atomically(code / ("packages.txt" if free else "trainyard-packages.txt"), lines)
    if inference is not None:
        add_code(code, CODE / inference)
    description = description | {"packages_sha256": hashlib.sha256(lines.encode()).hexdigest()}
    write_atomically(code / NAME, json.dumps(description, indent=1))


def add_code(target: Path, script: Path) -> None:
    """Copy the inference script as inference.py, and the files next to it that it can import."""
    files = {"inference.py": script} | {
        name: script.parent / name
        for name in list_files(script.parent)
        if name.endswith(".py") or name == "requirements.txt"
    }
    # The script takes precedence over another file next to it that is named inference.py.
    if script.name != "inference.py":
        files |= {"inference.py": script}
    for name, path in files.items():
        if not (target / name).exists():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, target / name)


def list_packages() -> str:
    """Return the list of installed packages, in the format of ``training.export.artifact``."""
    versions = {f"{d.metadata['Name'].lower()}=={d.version}" for d in distributions()}
    python = ".".join(map(str, sys.version_info[:3]))
    return "".join(f"{line}\n" for line in [f"# Python {python}", *sorted(versions)])


def count_processes(config: dict[str, Any]) -> int:
    """Return the total number of processes that the launcher starts, as AWS's drivers do."""
    nodes = int(os.environ["SM_HOST_COUNT"])
    if config["launcher"] in ("none", "own"):
        return nodes
    gpus, neurons = (int(os.environ.get(f"SM_NUM_{kind}", "0")) for kind in ("GPUS", "NEURONS"))
    count = config["process_count_per_node"] or gpus or neurons or 1
    return count if config["launcher"] == "mpi" else nodes * count


def is_first_node() -> bool:
    """Return whether this is the first node, the only one that describes its model."""
    return os.environ["SM_CURRENT_HOST"] == os.environ["SM_MASTER_ADDR"]


def find_torch_release() -> str | None:
    """Return torch's version without its build tag, or None if torch is not installed."""
    try:
        return version("torch").partition("+")[0]
    except PackageNotFoundError:
        return None


def file_sha256(path: Path) -> str:
    """Return the SHA-256 of a file's content."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(BLOCK):
            digest.update(block)
    return digest.hexdigest()


def json_sha256(value: Any) -> str:
    """Return the SHA-256 of a JSON value, as ``trainyard.common.hashes`` computes it."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


def write_atomically(path: Path, text: str) -> None:
    """Write the file atomically."""
    draft = path.with_name(f"{path.name}.{os.getpid()}")
    draft.write_text(text, encoding="utf-8")
    draft.replace(path)


if __name__ == "__main__":
    sys.exit(main())
