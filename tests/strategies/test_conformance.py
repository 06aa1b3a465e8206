"""Every built-in strategy passes the kit; one that has no class here fails the build."""

from __future__ import annotations

from minga.codecs import BFloat16, Half, Int8, PowerSGD
from minga.plan.auto import Auto
from minga.strategies import (
    STRATEGIES,
    Adaptive,
    AllReduce,
    DiLoCo,
    Gossip,
    Hierarchical,
    LocalSGD,
    ParameterServer,
    Probe,
    Single,
    Strategy,
    Switch,
)
from minga.testing import DeterministicStrategyConformance, ExactStrategyConformance, StrategyConformance


def exactly(name: str, strategy: Strategy) -> type[ExactStrategyConformance]:
    return type(f"Test_{name}", (ExactStrategyConformance,), {"make": lambda self: strategy})


def roughly(name: str, strategy: Strategy) -> type[StrategyConformance]:
    return type(f"Test_{name}", (StrategyConformance,), {"make": lambda self: strategy})


def again(name: str, strategy: Strategy) -> type[DeterministicStrategyConformance]:
    return type(f"Test_{name}", (DeterministicStrategyConformance,), {"make": lambda self: strategy})


TestNative = exactly("native", AllReduce(collective="native"))
TestRing = exactly("ring", AllReduce(collective="ring"))
TestTree = exactly("tree", AllReduce(collective="tree"))
TestHalvingDoubling = exactly("halving_doubling", AllReduce(collective="halving_doubling"))
TestMesh = exactly("mesh", AllReduce(collective="mesh"))
TestTwoLevel = exactly("two_level", AllReduce(collective="two_level"))
TestTwoLevelInPairs = exactly("two_level_pairs", AllReduce(collective="two_level", group_size=2))
TestManyBuckets = exactly("many_buckets", AllReduce(collective="ring", bucket_bytes=64))
TestDirect = exactly("direct", AllReduce(collective="direct"))
TestLocalInEveryStep = exactly("local_every_step", LocalSGD(period=1))
TestLocal = again("local", LocalSGD(period=4))
TestLocalOverlapped = again("local_overlapped", LocalSGD(period=4, overlap=4))
TestLocalSqueezed = again("local_squeezed", LocalSGD(period=4, overlap=1, codec=PowerSGD(rank=1)))
TestPostLocal = again("post_local", LocalSGD(period=4, post_local=10))
TestLocalGrowing = again("local_growing", LocalSGD(period=1, growth=2.0, growth_steps=20))
TestLocalShrinking = again("local_shrinking", LocalSGD(period=8, growth=0.5, growth_steps=20, overlap=3))
TestLocalUntilTogether = again("local_until_together", LocalSGD(period=4, growth=0.5, growth_steps=6))
TestDiLoCo = again("diloco", DiLoCo(period=8))
TestStreamingDiLoCo = again("diloco_streaming", DiLoCo(period=8, fragments=3, overlap=2, codec=Int8()))
TestAdaptive = roughly("adaptive", Adaptive())
TestAdaptiveWithOneCodec = roughly("adaptive_int8", Adaptive(codec=Int8(feedback=True, rounding="nearest")))
TestAdaptiveWithThinMatrices = roughly("adaptive_power", Adaptive(codec=PowerSGD(rank=1, factors="int8")))
TestAuto = roughly("auto", Auto())
TestServer = exactly("ps", ParameterServer())
TestTwoServers = exactly("ps2", ParameterServer(servers=2))
TestThreeServers = exactly("ps3", ParameterServer(servers=3))
TestManyServers = exactly("ps70", ParameterServer(servers=9))
TestStaleByZero = exactly("ssp0", ParameterServer(mode="ssp", staleness=0))
TestSwitchToSynchronous = again("switch_sync", Switch(at=10, mode="sync"))
TestStale = roughly("ssp", ParameterServer(mode="ssp", staleness=2))
TestAsynchronous = roughly("async", ParameterServer(mode="async"))
TestAsynchronousServers = roughly("async2", ParameterServer(mode="async", servers=2))
TestSwitch = roughly("switch", Switch(at=10))
TestSwitchOnPlateau = roughly("switch_plateau", Switch(window=5, patience=1))
TestGossip = again("gossip", Gossip())
TestGossipRing = again("gossip_ring", Gossip(graph="ring", overlap=False))
TestGossipRandom = again("gossip_random", Gossip(graph="random", period=2, codec=BFloat16()))
TestGossipCopies = again("gossip_copies", Gossip(graph="ring", codec=Half()))
TestPushSum = again("push_sum", Gossip(algorithm="push_sum"))
TestPushSumRandom = again("push_sum_random", Gossip(algorithm="push_sum", graph="random", overlap=False))
TestHierarchical = again("hierarchical", Hierarchical(site_size=2))
TestHierarchicalPush = again("sites_push", Hierarchical(site_size=2, across=Gossip(algorithm="push_sum", period=3)))
TestHierarchicalAdaptive = roughly("sites_adaptive", Hierarchical(site_size=2, across=Adaptive()))
TestHierarchicalOverlapped = again(
    "sites_overlapped", Hierarchical(site_size=2, across=LocalSGD(period=4, overlap=3, codec=PowerSGD(rank=1)))
)
TestOneSite = exactly("one_site", Hierarchical())
TestHierarchicalExact = exactly("sites_exact", Hierarchical(site_size=2, across=AllReduce(collective="ring")))
TestSitesOfThree = exactly("sites_of_three", Hierarchical(site_size=3, across=AllReduce()))
TestAsynchronousGossip = roughly("asynchronous_gossip", Gossip(algorithm="asynchronous"))
TestAsynchronousRing = roughly("asynchronous_ring", Gossip(algorithm="asynchronous", graph="ring", codec=Half()))


def test_every_strategy_is_tested() -> None:
    made = [value().make() for name, value in globals().items() if name.startswith("Test")]
    for name, preset in STRATEGIES.items():
        fits = [
            strategy
            for strategy in made
            if type(strategy) is preset.cls and all(getattr(strategy, k) == v for k, v in preset.fields.items())
        ]
        # One has nobody to exchange with, the other only measures.
        assert fits or preset.cls in (Single, Probe), f"strategy {name!r} has no conformance test"
