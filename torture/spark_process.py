"""The Spark job of a round as a family of processes: a driver (Python and its Java), executors, and their Python workers."""

from __future__ import annotations

import os
import shutil
from contextlib import suppress
from pathlib import Path

import msgspec
import psutil

from torture.process import Process
from torture.spark_job import Job

ROOT = Path(__file__).resolve().parents[1]
LOCAL = "local[2]"
"""The driver's Java is the executor, too."""
WITH_EXECUTORS = "local-cluster[1,1,1024]"
"""The driver starts one executor of one core as a process of its own, and another one when it dies."""
EXECUTOR_CLASS = "org.apache.spark.executor.CoarseGrainedExecutorBackend"
ROWS_OF_A_BATCH = 10


class SparkProcess:
    """The job. It begins again where its checkpoint says, however it ended. All its files are in one folder."""

    def __init__(self, url: str, source: str, sink: str, folder: Path, *, master: str, bulk: int = 1) -> None:
        folder.mkdir()
        self._checkpoint = folder / "checkpoint"
        self._sign = folder / "running"
        rows = ROWS_OF_A_BATCH * bulk
        job = Job(url, source, sink, str(self._checkpoint), master, str(self._sign), rows)
        places = {
            "PYTHONPATH": os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH")))),
            "SPARK_LOCAL_DIRS": str(folder),
            "JAVA_TOOL_OPTIONS": f"-Djava.io.tmpdir={folder}",  # so that nothing is left of those that are killed
        }
        arguments = ["torture.spark_job", msgspec.json.encode(job).decode()]
        self._process = Process(arguments, folder / "job.log", places)
        self._left: list[psutil.Process] = []
        """Children of drivers that were killed. They end by themselves when they notice."""
        self._done_before_hit = -1

    @property
    def starts(self) -> int:
        return self._process.starts

    @property
    def has_ended(self) -> bool:
        return self._process.has_ended

    @property
    def is_running(self) -> bool:
        """Whether the query of the last start runs, or has run."""
        return self._sign.exists()

    @property
    def is_in_a_batch(self) -> bool:
        """Whether a batch was begun, and is not done."""
        return self.is_running and _last(self._checkpoint / "offsets") > _last(self._checkpoint / "commits")

    @property
    def has_gone_on(self) -> bool:
        """Whether a batch was done since the last hit."""
        return _last(self._checkpoint / "commits") > self._done_before_hit

    def hit(self) -> None:
        """Note that a fault hits the job now."""
        self._done_before_hit = _last(self._checkpoint / "commits")

    @property
    def driver(self) -> list[psutil.Process]:
        """The driver: the process of the job, and its Java."""
        if (python := self._python()) is None:
            return []
        with suppress(psutil.Error):
            return [python, *(child for child in python.children() if child.name() == "java")]
        return [python]

    @property
    def executors(self) -> list[psutil.Process]:
        """The executors, and the Python workers of each."""
        found = []
        for child in self._family():
            with suppress(psutil.Error):
                if EXECUTOR_CLASS in child.cmdline():
                    found += [child, *child.children(recursive=True)]
        return found

    def _family(self) -> list[psutil.Process]:
        """All processes below that of the job."""
        python = self._python()
        with suppress(psutil.Error):
            return [] if python is None else python.children(recursive=True)
        return []

    def _python(self) -> psutil.Process | None:
        """The process of the job while it runs. Without a pid, psutil would take our own process."""
        pid = self._process.pid
        with suppress(psutil.Error):
            return None if pid is None else psutil.Process(pid)
        return None

    def start(self) -> None:
        self._forget_executors()
        self._process.start()

    def kill_driver(self) -> None:
        """End the driver at once. Its executors and their workers live on for a moment, and may still send rows."""
        driver = self.driver
        self._left += [process for process in self._family() if process not in driver]
        _kill(driver)
        self._process.kill()

    def end(self) -> None:
        """End everything at once."""
        self.kill_driver()
        _kill(self._left)
        self._left = []
        self._forget_executors()

    def _forget_executors(self) -> None:
        """Remove the sign of the last start, and with it the files of its executors."""
        if self._sign.exists():
            place = Path(self._sign.read_text(encoding="utf-8"))
            shutil.rmtree(place, ignore_errors=True)
            with suppress(OSError):  # others have files there, too, or there were no executors
                place.parent.rmdir()
            self._sign.unlink()

    def last_words(self) -> str:
        return self._process.last_words()


def _kill(processes: list[psutil.Process]) -> None:
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            process.kill()
    psutil.wait_procs(processes)


def _last(folder: Path) -> int:
    """The number of the last batch that a folder of the checkpoint has."""
    with suppress(FileNotFoundError):
        return max((int(path.name) for path in folder.iterdir() if path.name.isdecimal()), default=-1)
    return -1
