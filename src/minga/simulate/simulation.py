"""`simulate(experiment, profile)`: a run in virtual time, with the same events and the same report as a real one.

summary = simulate(experiment, profile)                                  # accuracy against simulated time
summary = simulate(experiment, profile, mode="sizes", carrier=carrier)   # no data, no gradients: only time and bytes
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import torch

from minga.base.spec import describe
from minga.codecs.base import carried_out_by
from minga.comm.simulated import Carrier, ScheduledChange, SimulatedTransport, SimulatedWorld, Wires
from minga.errors import MingaError, UnsupportedError
from minga.measure.energy import estimated_watts
from minga.measure.events import Sampled
from minga.measure.recorder import Recorder
from minga.model.replica import Replica
from minga.model.torch_threads import torch_threads
from minga.report.live import View, seldom
from minga.report.summary import Summary, summarise
from minga.runs.directory import SIMULATED, event_file, make_run_directory, save_model
from minga.runs.experiment import Experiment
from minga.runs.workload import Workload, load_workload
from minga.simulate.profile import Profile
from minga.simulate.replicas import SimulatedReplica, SimulatedTrainState, SizedOrder, SizedReplica
from minga.simulate.wiring import wires_of
from minga.simulate.workplace import PricedCodecs, Workplace
from minga.training.loop import train
from minga.training.run_log import traced
from minga.training.train_state import TrainState, build_train_state

__all__ = ["Mode", "Simulation", "simulate"]

Mode = Literal["mathematics", "sizes"]


def simulate(
    experiment: Experiment,
    profile: Profile,
    view: View | None = None,
    *,
    mode: Mode = "mathematics",
    carrier: Carrier | None = None,
    changes: tuple[ScheduledChange, ...] = (),
    varied: bool = True,
    wires: Wires | None = None,
    speeds: Sequence[float] = (),
) -> Summary:
    """Train as the experiment says, in virtual time; what came out. The run's directory has the events.

    `carrier`: what messages cost besides the wire; `changes`: what happens to hosts and cables on the way;
    `varied`: whether steps take longer or shorter by chance, as often as the profile says; `wires`, `speeds`: cables
    and hosts of a cluster that was described or measured, instead of the experiment's network.
    """
    directory = make_run_directory(experiment)
    view = view or View()
    strategy = describe(experiment.chosen_strategy)
    view.begin(directory, f"{experiment.workload}, {experiment.cluster.nodes} nodes, {strategy}, simulated")
    if wires is None:
        wires = wires_of(experiment.cluster.network, experiment.hosts, carrier)
    simulation = Simulation(experiment, profile, dataclasses.replace(wires, changes=changes), mode=mode, varied=varied)
    for host, speed in zip(simulation.world.hosts, speeds, strict=False):  # servers beyond them are like the profile's
        host.speed *= speed
    simulation.run(directory, when_stepped=seldom(view.tick))  # a thousand ranks step at once
    facts = {"mode": mode, "profile": profile.workload, "device": profile.device}
    (directory / SIMULATED).write_text(json.dumps(facts) + "\n", encoding="utf-8")
    summary = summarise(directory)
    assert summary is not None, "every rank ended well, yet none began"
    return summary


@dataclass
class Priced:
    """What a simulated rank has done."""

    seconds: float
    """Until it was done with everything."""
    steps: int
    bytes_sent: int
    """While training."""
    step_ends: list[float]
    bytes_at: list[int]
    """Sent until the end of each step."""
    worked_at: list[float]
    """Seconds that its host has worked until then, messages included."""
    luck_at: list[float]
    """Seconds that its steps until then took less, by chance, than as many take in the mean."""

    def per_step(self, values: Sequence[float], first: int) -> float:
        """What one of these lists grows by in a step, in the mean over those after the step with index `first`."""
        return (values[-1] - values[first]) / (self.steps - first - 1)


class Simulation:
    """An experiment in a simulated world."""

    def __init__(
        self, experiment: Experiment, profile: Profile, wires: Wires, *, mode: Mode = "mathematics", varied: bool = True
    ) -> None:
        cluster = experiment.cluster
        # Nothing of this machine is measured: neither its interfaces nor control groups nor this process.
        self._experiment = dataclasses.replace(
            experiment,
            cluster=dataclasses.replace(cluster, cpu=(), pin=False, network=None),
            measuring=dataclasses.replace(experiment.measuring, interval_seconds=0),
        )
        self._profile = profile
        self._mode = mode
        self._varied = varied
        hosts = [experiment.host_of(rank) for rank in range(experiment.ranks)]
        self.world = SimulatedWorld(wires, hosts, own_random_numbers=mode == "mathematics")
        for host in self.world.hosts:
            share = experiment.cpu_of(host.number)
            host.speed = 1.0 if share is None else min(1.0, share / cluster.threads)
            host.cores = share or 1.0
        self._layout = profile.layout
        self.train_states: dict[int, TrainState] = {}

    def run(self, directory: Path | None = None, *, when_stepped: Callable[[], None] = lambda: None) -> list[Priced]:
        """Train; events go to the run's directory, if there is one."""
        world, experiment = self.world, self._experiment
        recorders = [
            Recorder(None if directory is None else event_file(directory, rank), world.now)
            for rank in range(world.size)
        ]
        workload = (
            load_workload(experiment.workload, experiment.data)
            if self._mode == "mathematics"
            else self._sized_workload()
        )

        def program(rank: int) -> Priced:
            recorder = recorders[rank]
            place = Workplace(
                world, self._profile, recorder.spans, seed=experiment.training.seed * 7919 + rank, varied=self._varied
            )
            train_state = self.train_states[rank] = self._build(workload, rank, recorder, place)
            comm = traced(SimulatedTransport(world, rank), recorder)
            host = world.ranks[rank].host
            done = Priced(0.0, 0, 0, [], [], [], [])

            def stepped() -> None:
                done.step_ends.append(comm.now())
                done.bytes_at.append(recorder.traffic.bytes)
                done.worked_at.append(host.worked)
                done.luck_at.append(place.luck / host.speed)
                when_stepped()

            before = host.worked
            try:
                train(experiment, train_state, comm, recorder, when_stepped=stepped)
            except (RuntimeError, TypeError) as error:
                # Torch has no type of its own for it, only words, and spells them both ways.
                if self._mode == "mathematics" or isinstance(error, MingaError) or "meta" not in str(error).lower():
                    raise
                raise UnsupportedError(
                    f"{describe(experiment.chosen_strategy)} looks at values ({str(error).splitlines()[0]}), but this "
                    "simulation has only sizes; simulate it with its mathematics"
                ) from error
            self._report_energy(recorder, rank, comm.now(), host.worked - before)
            if rank == 0 and directory is not None and self._mode == "mathematics":
                save_model(directory, train_state.replica.model)
            done.seconds, done.steps, done.bytes_sent = comm.now(), train_state.replica.step, recorder.traffic.bytes
            return done

        # As many as a real rank would have: what is learnt is the same to the bit.
        threads = experiment.cluster.threads if self._mode == "mathematics" else torch.get_num_threads()
        try:
            with (
                torch.random.fork_rng(devices=[]),
                torch_threads(threads),
                carried_out_by(PricedCodecs(world, self._profile)),
            ):
                return world.run(program)
        finally:
            for recorder in recorders:
                recorder.close()

    def _build(self, workload: Workload, rank: int, recorder: Recorder, place: Workplace) -> TrainState:
        replica: Replica
        if self._mode == "mathematics":
            built = build_train_state(self._experiment, workload, rank, recorder.spans, make_replica=SimulatedReplica)
            replica, train_state = built.replica, SimulatedTrainState(**vars(built), workplace=place)
        else:
            settings = self._experiment.training
            replica = SizedReplica(self._profile, self._layout, spans=recorder.spans)
            replica.rank = rank
            order = SizedOrder(self._profile.samples, settings.seed, drop_last=settings.drop_last)
            train_state = SimulatedTrainState.of(self._experiment, workload, replica, order, workplace=place)
        assert isinstance(replica, SimulatedReplica)
        replica.workplace = place
        return train_state

    def _sized_workload(self) -> Workload:
        profile = self._profile
        samples: object = range(profile.samples)
        return Workload(
            name=profile.workload,
            model=torch.nn.Module,
            train=samples,  # type: ignore[arg-type]
            batch=profile.batch,
            epochs=profile.epochs,
        )

    def _report_energy(self, recorder: Recorder, rank: int, seconds: float, cpu_seconds: float) -> None:
        """By the work of the host; of ranks that share one, the first reports."""
        measuring = self._experiment.measuring
        if self._experiment.host_of(rank) != rank or not seconds:
            return
        watts = estimated_watts(cpu_seconds, seconds, idle_watts=measuring.idle_watts, core_watts=measuring.core_watts)
        recorder.emit(
            Sampled(
                time=recorder.now(),
                seconds=seconds,
                cpu_seconds=cpu_seconds,
                memory_bytes=0,
                bytes_received=None,
                bytes_sent=None,
                watts=watts,
                estimated=True,
            )
        )
