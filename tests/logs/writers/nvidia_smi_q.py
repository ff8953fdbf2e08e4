"""Writes snapshots as ``nvidia-smi -q`` would print them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from gpumon.model import Snapshot
from tests.logs.writers.smi_tree import Node, dumps

_WIDTH = 55


def write(snapshots: Iterable[Snapshot]) -> str:
    """One dump a snapshot."""
    return "\n".join(_lines(snapshots)) + "\n"


def _lines(snapshots: Iterable[Snapshot]) -> Iterator[str]:
    for dump in dumps(snapshots):
        yield from ("", "==============NVSMI LOG==============", "")
        for node in dump.head:
            yield from _node(node, 0)
        yield ""
        for card in dump.cards:
            yield f"GPU {card.bus.upper()}"
            for node in card.nodes:
                yield from _node(node, 1)
            if not card.processes:
                yield from _node(Node("Processes", "processes", "None"), 1)
                continue
            yield "    Processes"
            for process in card.processes:
                for number, node in enumerate(process):
                    yield from _node(node, 2 + (number > 2))


def _node(node: Node, depth: int) -> Iterator[str]:
    indent = " " * 4 * depth
    if node.cell is not None:
        yield f"{indent + node.name:<{_WIDTH}}: {node.cell}"
        return
    if node.name:
        yield indent + node.name
    for part in node.parts:
        yield from _node(part, depth + bool(node.name))
