"""What a trial asks of a client, whatever its shape: an adapter turns a target into a
``TrialClient``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from ..core.place import Place
from .facts.batch import PlantedBatch

UNSET: Final[Any] = type(
    "_Unset", (), {"__repr__": lambda self: "UNSET", "__bool__": lambda self: False}
)()
"""Stands for arguments that are not given."""

EPISODE = "episode"
"""What a client takes that plays whole episodes in sandboxes."""
TAKES = {
    "code": "sends the program exactly as it is given",
    "language": "takes a language for each call",
    "stdin": "takes a standard input for each call",
    "files": "takes files for each call",
    "timeout": "takes a timeout for each call",
    "arguments": "takes the raw arguments of a model",
    "tests": "takes test cases (standard input, expected output) and returns a score",
    "batch": "takes the samples of a batch in one call and returns a list of scores",
    "default_timeout": "can be configured with the timeout of calls that state none",
    "timeout_unsent": "takes a timeout that reaches no request, such as that of a connection",
    "compile_timeout": "can be configured with a timeout for the compiler",
    "memory": "can be configured with a memory limit",
    "headers": "can be configured with headers",
    "rate_limit": "can be configured with a limit on requests in flight",
    "deadline": (
        "can be configured with a time limit for a whole call, attempts and pauses included"
    ),
    "urls": "can be configured with several sandboxes",
    "text": "returns what the model reads",
    "reward": "returns a reward",
    "instances": "has instances, several calls of which may be interleaved",
    "concurrent": "can make several calls at once",
    "cancel": "can be cancelled",
    "raises": "may raise where it cannot return a result of a program",
    "groups": "takes the rewards of several prompts' samples and returns advantages",
    "mask": "takes a mask of the samples that count",
    "nan": "takes rewards of NaN",
    "none": "takes rewards of None",
    "dropped": "takes a batch in which rows are missing",
    EPISODE: "plays whole episodes in sandboxes that live and die",
}
"""What the shape of a client may be given or asked for. A plan leaves out what a client does not
take, and what only that would have shown is unknown."""
EXIT_FIELDS = ("exit_code", "return_code", "returncode", "exit")
"""The names under which clients return exit codes, or put them on an exception."""
OF_ESTIMATORS = frozenset({"groups", "mask", "nan", "none", "dropped"})
"""What only an advantage estimator takes."""
PARAMETERS = (
    frozenset(TAKES)
    - OF_ESTIMATORS
    - {
        EPISODE,
        "code",
        "tests",
        "batch",
        "text",
        "reward",
        "instances",
        "concurrent",
        "cancel",
        "raises",
        "timeout_unsent",
    }
)
"""Those that are given to a client, for a call or as a setting."""


@dataclass(frozen=True)
class Settings:
    """What a client is configured with, as far as it can be."""

    urls: tuple[str, ...]
    """Addresses of sandboxes, without the route."""
    headers: Mapping[str, str] = field(default_factory=dict)
    rate_limit: int | None = None
    default_timeout: float = 30.0
    """Seconds for a program whose call states no timeout."""
    compile_timeout: float | None = None
    memory_limit_mb: int | None = None
    deadline: float | None = None
    """Seconds for a whole call, where a client can be told so."""
    scale: float = 1.0
    """By how much the plan was shortened for a wall clock; a client whose pauses can be configured
    follows it."""


@dataclass(frozen=True)
class TrialAsk:
    """One call that a client is asked to make."""

    call: str
    """Unique in its scene."""
    code: str = ""
    language: str = "python"
    stdin: str | None = None
    files: Mapping[str, bytes] = field(default_factory=dict)
    timeout: float | None = None
    arguments: Any = UNSET
    """Given to the client as they are, instead of a program."""
    truth: str = ""
    """The ground truth for a reward."""
    tests: tuple[tuple[str, str], ...] = ()
    """For a reward function: standard input and expected output of each test."""
    among: int = 1
    """How many samples, this one included, a reward function of a batch gets in one call."""
    instance: str = ""
    """Calls with the same name belong to one instance (a trajectory); an empty one is the call's
    own."""
    last: bool = True
    """The instance is asked for its reward and released after this call."""
    executes: bool = True
    """Otherwise nothing is executed: the instance is asked for its reward, and released, perhaps
    amid another call."""
    batch: PlantedBatch | None = None
    """For an advantage estimator: what it is called with, instead of a program."""


SCORES_IN_LIST = "scores_in_list"
"""The field that says how many scores came back where there was another number of samples."""


@dataclass(frozen=True)
class Returned:
    """What came back from a call."""

    text: str = ""
    """What the model reads."""
    fields: Mapping[str, Any] = field(default_factory=dict)
    """What else came back, by name: ``outcome``, ``exit_code``, metrics."""
    reward: float | None = None
    raised: str | None = None
    """``Type: message`` if the client raised."""
    altered: str = ""
    """How the client changed the arguments that it was given; empty if it did not."""
    paused: bool | None = None
    """Did the thread in which it was called ever pause? None if that is not known."""


class TrialClient(Protocol):
    """A client under trial. ``begin`` and ``end`` surround the calls of one scene."""

    takes: frozenset[str]
    """Keys of ``TAKES``."""

    async def begin(self, settings: Settings) -> None: ...

    async def call(self, ask: TrialAsk) -> Returned:
        """Make a call; what the client raises is returned in ``raised``. May be cancelled if it
        takes ``cancel``."""

    async def end(self) -> None: ...

    def inside(self) -> Any:
        """Return the object that must hold nothing of a released instance; None if there is none to
        look into."""


@dataclass(frozen=True)
class Shape:
    """A target that can be played."""

    name: str
    """As the user gave it."""
    about: str
    """What it is, in a few words."""
    make: Callable[[], TrialClient]
    """Makes a client for one scene."""
    takes: frozenset[str]
    wall: str = ""
    """Why virtual time cannot play it; empty if it may."""
    sim_if_asked: bool = False
    """Virtual time may play it all the same if the user says so."""
    face: str = ""
    """The service that its file names, if it plays episodes; empty if that is not clear."""
    child: bool = False
    """It is another process, whose waits cannot be shortened."""
    divide: bool = False
    """Several clients may be there at a time: each gets its own address."""
    place: Place | None = None
    """Where it is defined, if it is a function or class of the user."""


WARM_UP = "warm-up"
"""A call of a command before the first one that counts: its start takes time."""
