"""What kind of storage the files that a process reads lie on."""

from __future__ import annotations

import re

from gpumon.sources.host.procfs import list_numbers, number_after, read, read_link

_KINDS = {
    "nfs4": "nfs",
    "cifs": "smb",
    "smb3": "smb",
    "smbfs": "smb",
    "fuseblk": "local",
    "ramfs": "tmpfs",
    "afs": "afs",
    "beegfs_nodev": "beegfs",
}
_REMOTE = frozenset("nfs lustre ceph gpfs beegfs fuse 9p smb virtiofs afs glusterfs pvfs2 orangefs wekafs".split())
_NO_DATA = re.compile(
    r"/(?:dev|proc|sys)/|/memfd:|/anon_hugepage|.*(?:\.so(?:\.\d+)*|\.pyc?|\.log|\.egg| \(deleted\))$|.*/site-packages/"
)
_DESCRIPTORS_MAX = 512
_CANDIDATES_MAX = 24
_LOOK_AGAIN_S = 60.0
_ESCAPED = re.compile(r"\\([0-7]{3})")


def parse_mounts(data: bytes | None) -> dict[str, str]:
    """Mount point -> file system type; of several on one point the last, which hides the others."""
    mounts: dict[str, str] = {}
    for line in (data or b"").decode("utf-8", "replace").splitlines():
        words = line.split(" ")
        if len(words) >= 4:
            mounts[_ESCAPED.sub(lambda octal: chr(int(octal.group(1), 8)), words[1])] = words[2]
    return mounts


def kind_at(path: str, mounts: dict[str, str]) -> str | None:
    """Name the kind of storage under a path: local, tmpfs, or the network file system's family."""
    at = path
    while at:
        at = at.rsplit("/", 1)[0]
        if (found := mounts.get(at or "/")) is not None:
            family = found.split(".", 1)[0]
            kind = _KINDS.get(family, family)
            return kind if kind in _REMOTE or kind == "tmpfs" else "local"
    return None


class DataFilesystems:
    """Looks through the open files of one process at a time; mounts are kept per mount namespace for a while."""

    def __init__(self, proc: str) -> None:
        self._proc = proc
        self._mounts: dict[str, tuple[float, dict[str, str]]] = {}

    def kind_of(self, pid: int, now: float) -> str | None:
        """Return the kind of storage behind the regular files that a process has open for reading.

        A network file system wins over a local one, a local one over memory. Nothing here touches the files
        themselves: a dead NFS server must not stop the monitor.
        """
        mounts = self._mounts_of(pid, now)
        candidates = 0
        best: str | None = None
        for number in list_numbers(f"{self._proc}/{pid}/fd")[:_DESCRIPTORS_MAX]:
            path = read_link(f"{self._proc}/{pid}/fd/{number}")
            if path is None or not path.startswith("/") or _NO_DATA.match(path):
                continue
            candidates += 1
            if candidates > _CANDIDATES_MAX:
                break
            kind = kind_at(path, mounts)
            if kind is None or not self._is_read(pid, number):
                continue
            if kind in _REMOTE:
                return kind
            best = "local" if "local" in (kind, best) else kind
        return best

    def _mounts_of(self, pid: int, now: float) -> dict[str, str]:
        namespace = read_link(f"{self._proc}/{pid}/ns/mnt") or str(pid)
        looked_at, mounts = self._mounts.get(namespace, (None, {}))
        if looked_at is None or now - looked_at >= _LOOK_AGAIN_S:
            if len(self._mounts) > 64:
                self._mounts.clear()
            mounts = parse_mounts(read(f"{self._proc}/{pid}/mounts", 1 << 20))
            self._mounts[namespace] = (now, mounts)
        return mounts

    def _is_read(self, pid: int, number: int) -> bool:
        """Open for writing alone means a log or a checkpoint."""
        flags = number_after(read(f"{self._proc}/{pid}/fdinfo/{number}") or b"", b"flags:")
        return flags is not None and flags % 10 & 3 != 1
