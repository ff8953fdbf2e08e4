"""Writes snapshots as ``nvidia-smi -q -x`` would print them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from xml.sax.saxutils import escape

from gpumon.model import Snapshot
from tests.logs.writers.smi_tree import Node, dumps


def write(snapshots: Iterable[Snapshot]) -> str:
    """One document a snapshot."""
    return "\n".join(_lines(snapshots)) + "\n"


def _lines(snapshots: Iterable[Snapshot]) -> Iterator[str]:
    for dump in dumps(snapshots):
        yield '<?xml version="1.0" ?>'
        yield '<!DOCTYPE nvidia_smi_log SYSTEM "nvsmi_device_v13.dtd">'
        yield "<nvidia_smi_log>"
        for node in dump.head:
            yield from _node(node, 1)
        for card in dump.cards:
            yield f'\t<gpu id="{card.bus.upper()}">'
            for node in card.nodes:
                yield from _node(node, 2)
            yield from _processes(card.processes)
            yield "\t</gpu>"
        yield "</nvidia_smi_log>"


def _processes(processes: Sequence[Sequence[Node]]) -> Iterator[str]:
    yield from _node(Node("", "processes", None, [Node("", "process_info", None, nodes) for nodes in processes]), 2)


def _node(node: Node, depth: int) -> Iterator[str]:
    indent = "\t" * depth
    if node.cell is not None:
        yield f"{indent}<{node.tag}>{escape(node.cell)}</{node.tag}>"
        return
    yield f"{indent}<{node.tag}>"
    for part in node.parts:
        yield from _node(part, depth + 1)
    yield f"{indent}</{node.tag}>"
