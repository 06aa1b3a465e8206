"""The training loop, the same for every strategy, transport and launcher."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from minga.comm.transport import Transport
from minga.measure.recorder import Recorder
from minga.model.buffers import agree_on_buffers, take_buffers
from minga.runs.experiment import Experiment
from minga.training.checkpoints.manager import Keeper
from minga.training.pace import Pace
from minga.training.run_log import RunLog, metering_of
from minga.training.train_state import TrainState
from minga.training.whole_batch import WholeBatch

__all__ = ["run_log_of", "train"]


def run_log_of(experiment: Experiment, trainee: TrainState, comm: Transport, recorder: Recorder) -> RunLog:
    """The account of a rank's training."""
    patience = experiment.training.bad_steps_in_a_row
    return RunLog(
        trainee.replica, comm, recorder, metering_of(experiment, trainee.replica.rank), bad_steps_in_a_row=patience
    )


def train(
    experiment: Experiment,
    trainee: TrainState,
    comm: Transport,
    recorder: Recorder,
    keeper: Keeper | None = None,
    journal: RunLog | None = None,
    *,
    when_stepped: Callable[[], None] = lambda: None,
) -> None:
    """Train on this rank until the end of the experiment; rank 0's events have the model's quality.

    `keeper`: who keeps checkpoints (None: nobody); `journal`: one that has begun with other ranks.
    """
    strategy, settings = experiment.chosen_strategy, experiment.training
    replica, order = trainee.replica, trainee.order
    spans, journal = recorder.spans, journal or run_log_of(experiment, trainee, comm, recorder)
    pace = Pace(experiment, comm, spans)
    whole_batch = WholeBatch(experiment, replica, comm, pace)

    def test(together: Transport) -> dict[str, float]:
        """Agree on buffers, then look how good the model is."""
        with journal.evaluation(order.progress, together) as findings, strategy.as_one(replica, together):
            agree_on_buffers(replica.model, together)
            findings.take(trainee.evaluate(together))
        return findings.numbers

    replica.when_ready = lambda bucket: strategy.gradient_ready(replica, bucket, comm)
    with (keeper or Keeper()).attach(strategy, comm, journal) as keeper:
        keeper.before_start()
        strategy.start(replica, comm)
        take_buffers(replica.model, comm)
        keeper.after_start()
        journal.started(samples=order.samples, batch=trainee.batch, epochs=trainee.epochs, steps=trainee.steps)
        begun = 0

        while True:
            trainers = strategy.trainers(replica, comm)
            if trainers != begun:  # at first, and when some take another role
                begun = trainers
                trainee.begin(comm.rank, trainers, strategy.carried(replica))
            if comm.rank >= trainers:
                journal.serving()
                with spans.span("serve"):
                    strategy.serve(replica, comm)
                journal.finished()
                return
            if trainee.progress >= 1:
                break

            replica.step += 1
            before = order.given_out
            with spans.span("data"):
                share = order.take(comm.rank, trainers, trainee.batch, trainee.total_batch)
                batch = trainee.fetch(share)
                trainee.schedule_learning_rate()
            replica.weight, replica.fill = share.weight, len(share.indices) / trainee.share_of(trainers)
            replica.statistics.keep()
            with pace.computing(), whole_batch.normalised(share.total, trainers):
                replica.compute_gradients(None if batch is None else partial(trainee.loss_of, batch))
            with spans.span("exchange"):
                strategy.step(replica, comm)
            journal.stepped(samples=len(share.indices), progress=trainee.progress, epoch=order.progress)
            good = journal.looked_for_bad_numbers()
            when_stepped()

            metrics: dict[str, float] = {}
            if settings.evaluates_between(before, order.given_out) and trainee.progress < 1:
                # Ranks that are not in step must not wait for each other: rank 0 looks at what it has.
                together = strategy.lockstep(replica)
                if together or comm.rank == 0:
                    metrics = test(comm.group(range(trainers) if together else [0]))
            keeper.stepped(good=good, metrics=metrics)

        with spans.span("exchange"):
            strategy.finish(replica, comm)
    journal.finished()
    test(comm.group(range(strategy.trainers(replica, comm))))
