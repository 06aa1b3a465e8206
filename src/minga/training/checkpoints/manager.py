"""What a training loop calls: put back a checkpoint at the start, take new ones on the way, stop when asked to.

    with checkpoints:
        with checkpoints.put_back():
            strategy.start(replica, comm)
        for ...:
            ...
            checkpoints.stepped(good=True, metrics={})   # raises RunStopped at the end of a step, if asked to stop

`NoCheckpoints` itself does nothing of this, for loops without a run directory; `CheckpointManager` does.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from types import TracebackType
from typing import Self

from minga.base.spec import describe
from minga.comm.transport import Transport
from minga.errors import CheckpointError, DivergedError, MingaError, PeerDiverged, PeerLost, RunStopped
from minga.measure.events import CheckpointFailed, CheckpointWritten
from minga.measure.recorder import Recorder
from minga.runs.experiment import Checkpoints
from minga.strategies.base import Strategy
from minga.strategies.capabilities import Checkpointed, active, capability, trainers
from minga.strategies.parameter_server.state import ServerState
from minga.training.checkpoints import snapshot
from minga.training.checkpoints.files import Checkpoint, checkpoint_name, remove_leftovers
from minga.training.checkpoints.parts import load_shared, read_part
from minga.training.checkpoints.schedule import CheckpointSchedule, Verdict
from minga.training.checkpoints.snapshot import Snapshot
from minga.training.checkpoints.writer import CheckpointWriter, Part
from minga.training.run_log import RunLog
from minga.training.train_state import TrainState

__all__ = ["CheckpointManager", "NoCheckpoints"]

_LOG = logging.getLogger("minga.training.checkpoints")


class NoCheckpoints(AbstractContextManager["NoCheckpoints"]):
    """Keeps nothing; base of those that do."""

    goes_on = False
    """Whether training goes on with others when a peer is lost: then nothing has ended."""
    may_write: Callable[[], bool] = staticmethod(lambda: True)
    """Whether this rank may write what all share: not when the others may have gone on without it."""
    last_written: str | None = None
    """The last checkpoint that this rank has written its part of."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Nothing has to be ended."""

    def attach(self, strategy: Strategy, comm: Transport, run_log: RunLog) -> Self:
        """Tell it whose training this is; before anything else."""
        return self

    def put_back_before_meeting(self, strategy: Strategy) -> None:
        """Where only one rank has a checkpoint, put it back before it meets the others, who get it from there."""

    def put_back(self) -> AbstractContextManager[None]:
        """Around `Strategy.start`: as many ranks as before get all back after it; others what all share, before it."""
        return nullcontext()

    def gone_on(self) -> None:
        """The others have trained already, and this rank has what they have: there is nothing to be put back."""

    def close(self) -> None:
        """At the very end, whatever it was."""

    def stepped(self, *, good: bool, metrics: Mapping[str, float]) -> None:
        """After each step of a rank that trains; `good`: it was not left out, `metrics`: of an evaluation after it."""


class CheckpointManager(NoCheckpoints):
    """Checkpoints in a run's directory."""

    def __init__(
        self,
        run: Path,
        settings: Checkpoints,
        train_state: TrainState,
        recorder: Recorder,
        *,
        resume_from: Checkpoint | None = None,
        session: int = 0,
        stopping: Callable[[], bool] = lambda: False,
        one_part: bool = False,
    ) -> None:
        """`session`: how often the run was resumed; `stopping`: whether this rank was asked to stop.

        `one_part`: ranks share no disk, so a checkpoint is what rank 0 writes, without what each rank remembers.
        """
        self._one_part = one_part
        self._settings = settings
        self._run = run
        self._train_state = train_state
        self._recorder = recorder
        self._resume_from = resume_from
        self._session = session
        self._stopping = stopping
        self._schedule = CheckpointSchedule(settings)
        self._untried: Part | None = None
        """The last one, until a step from there on has shown that it is good."""
        self._best: float | None = None
        self._best_part: Part | None = None
        """The best so far, if it is not written yet."""
        self._before_bad: Part | None = None
        """The state before the bad steps in a row that are being left out."""
        self._writer = CheckpointWriter(
            run, keep=settings.keep, keep_best=settings.keep_best, failed=self._failed, written=self._written
        )
        self._metric = train_state.workload.main_metric
        self._higher_is_better = self._metric not in train_state.workload.lower_is_better
        self._submitted = False

    def attach(self, strategy: Strategy, comm: Transport, run_log: RunLog) -> Self:
        self._strategy, self._comm, self._run_log = strategy, comm, run_log
        # A strategy calls it on a rank that serves, when all that train have asked for it.
        ServerState.of(self._train_state.replica).save = self._save
        self._schedule = CheckpointSchedule(self._settings)  # what ranks have agreed on is of those that were
        remove_leftovers(self._run, comm.rank)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if isinstance(error, DivergedError | PeerDiverged):
            # Where there was any checkpoint before, an earlier one is more to be trusted.
            if self._before_bad is not None and not self._submitted and self._session == 0:
                self._submit(self._before_bad)
        elif isinstance(error, PeerLost) and self.goes_on:
            # Somebody's part of these will never come, so they would never be whole.
            self._untried = self._best_part = self._before_bad = self._best = None
            return
        self._submit_best()
        if self._untried is not None and error is None:
            self._submit(self._untried)
        self._writer.close()

    def gone_on(self) -> None:
        self._resume_from = None

    def close(self) -> None:
        self._writer.close()

    # --- at the start -------------------------------------------------------------------------------------------

    def put_back_before_meeting(self, strategy: Strategy) -> None:
        if self._resume_from is not None and self._one_part:
            state = self._train_state
            snapshot.put_back(load_shared(self._resume_from), state, strategy, shared_only=True)
            state.replica.progress.last_applied_step = state.replica.step
            state.begin_alone()

    @contextmanager
    def put_back(self) -> Iterator[None]:
        checkpoint, strategy, comm, train_state = self._resume_from, self._strategy, self._comm, self._train_state
        if checkpoint is None:
            yield
            return
        totals: Mapping[str, float] = {}
        manifest = checkpoint.manifest(0)
        if manifest.ranks == comm.size and manifest.strategy == describe(strategy):
            yield
            state = read_part(checkpoint, comm.rank)
            snapshot.put_back(state, train_state, strategy)
            capability(strategy, train_state.replica, Checkpointed).resume(train_state.replica, comm)
            self._best, totals = state.facts.get("best"), state.facts.get("totals", {})
        else:
            state = load_shared(checkpoint)
            if not self._one_part:
                snapshot.put_back(state, train_state, strategy, shared_only=True)
                if comm.rank == 0:
                    _LOG.warning(
                        "%s was made by %d ranks with %s: what each of them remembered is dropped, all else is kept",
                        checkpoint.name,
                        state.ranks,
                        state.facts["strategy"],
                    )
            yield
        self._run_log.go_on(totals, state.step, checkpoint.name)

    # --- on the way ---------------------------------------------------------------------------------------------

    def stepped(self, *, good: bool, metrics: Mapping[str, float]) -> None:
        strategy, replica, comm = self._strategy, self._train_state.replica, self._comm
        if self._untried is not None:
            # Parameters may be far off already when a checkpoint is taken; the next step shows it.
            untried, self._untried = self._untried, None
            if good:
                self._submit(untried)
        if good:
            self._before_bad = None
        ranks, lockstep = trainers(strategy, replica, comm), active(strategy, replica).traits.lockstep
        if comm.rank >= ranks:
            return  # from now on it serves, and is notified by those who train
        together = comm.group(range(ranks) if lockstep else [comm.rank])
        with self._recorder.spans.span("checkpoint"), self._recorder.traffic.paused():
            verdict = self._schedule.after(replica.step, together, lockstep=lockstep, stopping=self._stopping())
            value = metrics.get(self._metric) if lockstep and self._settings.keep_best else None
            if value is not None and math.isnan(value):
                value = None  # nothing would ever be better than what has no order
            better = value is not None and self._is_better(value)
            if better:
                self._best = value
            moment = replica.step if lockstep else self._schedule.number
            if verdict is Verdict.STOP:
                self._save(moment, leaving=True, value=value)
            elif not good:
                # Where all ranks leave a bad step out, the state is still what the last good one has left.
                alike = lockstep and not strategy.traits.replicas_differ and not strategy.traits.servers
                if self._before_bad is None and alike:
                    self._before_bad = self._take(moment)
            elif verdict is Verdict.CHECKPOINT:
                self._untried = self._take(moment, value)
            elif better:
                # Evaluations may come often. The best waits in memory for the next checkpoint, or for the end.
                self._best_part = self._take(moment, value)

    def _is_better(self, value: float) -> bool:
        if self._best is None:
            return True
        return value > self._best if self._higher_is_better else value < self._best

    def _take(self, moment: int, value: float | None = None, *, leaving: bool = False) -> Part | None:
        strategy, replica, comm = self._strategy, self._train_state.replica, self._comm
        began, checkpointed = comm.now(), capability(strategy, replica, Checkpointed)
        checkpointed.pause(replica, comm)
        name = checkpoint_name(moment, None if active(strategy, replica).traits.lockstep else self._session)
        state: Snapshot | None = None
        try:
            if comm.rank == 0 or not self._one_part:
                state = snapshot.take(self._train_state, strategy, comm, shared_only=self._one_part)
        except MingaError as error:  # something that can't be kept; the others go on, so this rank must too
            self._failed(name, error)
        if ServerState.of(replica).shard is None:
            checkpointed.announce_checkpoint(replica, comm, moment, leaving=leaving)
        if state is None:
            return None
        if self._one_part:
            state.facts |= {"rank": 0, "ranks": 1, "trainers": 1}
        state.facts |= {"best": self._best, "totals": self._run_log.totals()}
        state.facts |= {"value": value, "higher_is_better": self._higher_is_better}
        state.facts["metric"] = self._metric if value is not None else None
        return Part(name, state, comm.now() - began)

    def _save(self, moment: int, leaving: bool, value: float | None = None) -> None:
        """Take one and have it written; whoever is leaving waits for that, and ends."""
        part = self._take(moment, value, leaving=leaving)
        if part is not None:
            self._submit(part)
        if leaving:
            self._writer.wait()
            raise RunStopped(f"rank {self._comm.rank} was asked to stop after step {self._train_state.replica.step}")

    def _submit(self, part: Part, *, best: bool = False) -> None:
        if not self.may_write():
            self._failed(part.name, CheckpointError("this rank has lost contact with the others, who may have gone on"))
            return
        if not best:
            self._submit_best()
        self._submitted = True
        self._writer.submit(part, best=best)

    def _submit_best(self) -> None:
        if self._best_part is not None:
            part, self._best_part = self._best_part, None
            self._submit(part, best=True)

    def _written(self, part: Part, seconds: float, nbytes: int) -> None:
        self.last_written = part.name
        self._recorder.emit(
            CheckpointWritten(
                time=self._recorder.now(),
                step=part.state.step,
                checkpoint=part.name,
                bytes=nbytes,
                taking_seconds=part.taking_seconds,
                writing_seconds=seconds,
            )
        )

    def _failed(self, name: str, error: Exception) -> None:
        rank, step = self._comm.rank, self._train_state.replica.step
        message = str(error) if isinstance(error, MingaError) else f"{type(error).__name__}: {error}"
        _LOG.warning(
            "rank %d could not keep checkpoint %s: %s. Training goes on; earlier checkpoints are as they were",
            rank,
            name,
            message,
        )
        now = self._recorder.now()
        self._recorder.emit(CheckpointFailed(time=now, rank=rank, step=step, checkpoint=name, message=message))
        self._recorder.flush()
