"""What each finding means for a training, how much it harms, and what a right client does."""

from __future__ import annotations

from dataclasses import dataclass

SCORED = 0
"""The reward learns from what the sandbox did. The worst: nobody sees it in any log."""
OTHER_PROGRAM = 1
"""What ran is not what the model wrote."""
MISTAKEN_END = 2
"""The model is told that something else happened."""
OTHER_OUTPUT = 3
"""The model reads something else than the program printed."""
LOST = 4
"""A call or a rollout is lost that need not be."""
REPEATED = 5
"""Sandboxes do work twice, or more than they can."""
UNTRUE = 6
"""A number is wrong that people read, or code that compares it."""
LEFT_BEHIND = 7
"""Something is kept, goes on or is in the way."""
UNREAD = 8
"""Something new that a person has to read."""
ADVICE = 9
"""Not broken, but could be better."""


@dataclass(frozen=True)
class Lesson:
    """What a kind of finding means."""

    harm: int
    title: str
    remedy: str
    """What a right client does: the rest of a sentence that begins with "A right client"."""


_WHOLE = "sends code, language, standard input, files and timeouts exactly as they were given."
_OUTPUT = (
    "shows stdout and stderr once, as they were printed; where it cuts, it says how many "
    "characters are missing."
)
_WAITS = "waits for the time limit that it sent, and some seconds more, and gives up then."
_EXACT = "counts what it really sent and measures what it really waited for."

LESSONS = {
    ("tool_never_raises", ""): Lesson(
        LOST,
        "The client raises for programs that ran: the rollout dies, or the sample counts as lost",
        "reads every field of the answer as one that may be null, and returns a text, or raises "
        "with all of the output and the exit code.",
    ),
    ("outcomes", ""): Lesson(
        MISTAKEN_END,
        "The stated outcome is not what happened",
        "decides by the answer: the HTTP status first, then `status`, then `run_result`.",
    ),
    ("outcomes", "same"): Lesson(
        MISTAKEN_END,
        "One outcome is stated for ends that must be told apart",
        "decides by the answer: the HTTP status first, then `status`, then `run_result`.",
    ),
    ("outcomes", "unstated"): Lesson(
        MISTAKEN_END,
        "Some results lack the field that states the outcome in others",
        "returns the same fields for every end, also if the sandbox failed.",
    ),
    ("outcomes", "infrastructure"): Lesson(
        SCORED,
        "The flag `infrastructure` is wrong: failures are scored, or results left out",
        "sets it for every call whose result never came, and for no other.",
    ),
    ("retry_after_honoured", ""): Lesson(
        REPEATED,
        "A sandbox that asks for a pause gets none, and stays overloaded",
        "waits as long as Retry-After says, in seconds or as a date; else longer each time.",
    ),
    ("deadline_honoured", ""): Lesson(
        LOST,
        "A call does not end in time: the whole step waits for it",
        "sets a time limit for the whole call, longer than that of the program.",
    ),
    ("no_duplicate_execution", ""): Lesson(
        REPEATED,
        "Programs run again although a result was there or on its way",
        "sends a call again only after an attempt failed, and never after it has ended.",
    ),
    ("lost_samples_left_out", ""): Lesson(
        SCORED,
        "A lost sample changes what training learns from the others",
        "computes mean and std of a group without the samples that were lost.",
    ),
    ("no_lesson_without_siblings", ""): Lesson(
        SCORED,
        "A group without a difference in its rewards still teaches something",
        "gives an advantage of 0 to a lone survivor and to equal survivors.",
    ),
    ("arguments_unchanged", ""): Lesson(
        LEFT_BEHIND,
        "The client changes the arguments that it is given: the next call gets others",
        "copies what it changes.",
    ),
    ("nothing_left_behind", ""): Lesson(
        LEFT_BEHIND,
        "Tasks, requests or connections stay behind: a long training runs out of them",
        "closes sessions and awaits its tasks in `finally`, when a call fails too.",
    ),
    ("cancellation_ends_a_call", ""): Lesson(
        LEFT_BEHIND,
        "A cancelled call goes on, and keeps its place in the sandbox",
        "lets CancelledError pass, and closes the connection of the request.",
    ),
    ("in_flight_within_limit", ""): Lesson(
        REPEATED,
        "More requests are in flight than the limit allows: the sandbox is overloaded",
        "holds a permit for as long as a request is in flight.",
    ),
    ("sent_as_asked", ""): Lesson(
        OTHER_PROGRAM,
        "What the sandbox runs is not what the model asked for",
        _WHOLE,
    ),
    ("sent_as_asked", "limits_nothing"): Lesson(
        OTHER_PROGRAM,
        "A timeout that is given to the client limits nothing",
        "sends it as `run_timeout`, and waits for some seconds more than that.",
    ),
    ("metrics_are_true", ""): Lesson(
        UNTRUE, "Metrics are not those of the call", _EXACT
    ),
    ("instances_released", ""): Lesson(
        LEFT_BEHIND,
        "Released instances are kept: memory grows with every sample",
        "forgets everything about an instance in `release`, after a failure too.",
    ),
    ("reward_follows_the_end", ""): Lesson(
        SCORED,
        "rewards do not follow what the program printed",
        "rewards a program that succeeded and printed the ground truth, and no other.",
    ),
    ("score_follows_the_tests", ""): Lesson(
        SCORED,
        "scores do not follow the tests that passed",
        "scores the tests that ran by exit code and output, in their order.",
    ),
    ("score_follows_the_tests", "lost"): Lesson(
        SCORED,
        "A test that the sandbox lost counts as failed: right solutions get low rewards",
        "raises, or returns None, if a test was lost, so that the sample is left out.",
    ),
    ("score_follows_the_tests", "all_lost"): Lesson(
        SCORED,
        "A solution whose tests were all lost gets full marks",
        "raises, or returns None, if a test was lost, so that the sample is left out.",
    ),
    ("score_follows_the_tests", "hidden"): Lesson(
        SCORED,
        "A lost test counts as passed, and nothing tells that it was lost",
        "raises, or returns None, if a test was lost, so that the sample is left out.",
    ),
    ("score_follows_the_tests", "unearned"): Lesson(
        SCORED,
        "A solution that fails some of its tests gets full marks",
        "compares exit code and whole output of every test.",
    ),
    ("text_is_truthful", ""): Lesson(
        OTHER_OUTPUT, "The model does not read what its program printed", _OUTPUT
    ),
    ("text_is_truthful", "not_there"): Lesson(
        OTHER_OUTPUT, "The model never reads {stream} of its program", _OUTPUT
    ),
    ("text_is_truthful", "cut_silently"): Lesson(
        OTHER_OUTPUT, "Long output is cut without a notice", _OUTPUT
    ),
    ("text_is_truthful", "foreign"): Lesson(
        OTHER_OUTPUT, "The model reads output of another program", _OUTPUT
    ),
    ("no_secret_leaked", ""): Lesson(
        OTHER_PROGRAM,
        "A configured secret can be read in a text, an exception or a log line",
        "shows no headers, and no address with a password.",
    ),
    ("infra_never_scored", "episode_scored"): Lesson(
        SCORED,
        "Episodes that the service failed get a score: training learns from outages",
        "returns a score of None, or raises, for an episode in which the service failed a step.",
    ),
    ("answers_are_own", "of_another_step"): Lesson(
        SCORED,
        "Steps get the answers of other steps, and their rewards with them",
        "drops a connection on which it gave up waiting, so that a late answer finds nobody.",
    ),
    ("dead_never_replaced", ""): Lesson(
        SCORED,
        "An episode goes on in a blank sandbox after its own has died",
        "ends the episode without a score, or begins it again with its first step.",
    ),
    ("no_state_leaked", ""): Lesson(
        SCORED,
        "An episode reads files that another one left in its sandbox",
        "gives each episode a sandbox of its own, or empties it before.",
    ),
    ("create_once", ""): Lesson(
        REPEATED,
        "One episode has several sandboxes: the quota is used up, and somebody pays for them",
        "creates under a name or key of the episode, and looks for it before it creates again.",
    ),
    ("no_orphan_after_lost_create", ""): Lesson(
        LEFT_BEHIND,
        "Sandboxes whose create seemed to fail stay behind: nobody knows of them",
        "finds them by name or label after an error, a time-out or a cancel, and deletes or uses "
        "them.",
    ),
    ("every_sandbox_deleted", ""): Lesson(
        LEFT_BEHIND,
        "Sandboxes stay behind although their ids are known",
        "deletes in `finally`, shielded from a cancel, also while the sandbox starts.",
    ),
    ("delete_retried", ""): Lesson(
        LEFT_BEHIND,
        "A delete that failed is given up, and its sandbox stays",
        "sends a delete again until it is answered with success, or with 404.",
    ),
    ("ttl_covers_episode", ""): Lesson(
        LOST,
        "Sandboxes end by their TTL or because they idled, in the middle of an episode",
        "asks for a TTL longer than the episode may take, or renews it.",
    ),
    ("infra_never_scored", ""): Lesson(
        SCORED,
        "Calls that the sandbox failed get a reward: training learns from outages",
        "returns no reward (None) for a call whose result never came.",
    ),
    ("programs_waited_for", ""): Lesson(
        LOST, "Programs that would have ended in time are given up", _WAITS
    ),
    ("limit_used", ""): Lesson(
        REPEATED,
        "Permits lie idle while calls wait: the sandbox is not used",
        "gives its permit back while it backs off.",
    ),
    ("sent_in_order", ""): Lesson(
        LEFT_BEHIND,
        "Calls overtake each other: one may wait for ever",
        "gives permits in the order in which they were asked for.",
    ),
    ("sandboxes_used", ""): Lesson(
        LOST,
        "Calls fail although another sandbox is up, or a sandbox is never used again",
        "tries another sandbox after a failure, and the failed one again later.",
    ),
    ("exit_code_told", ""): Lesson(
        UNTRUE,
        "The exit code that is reported is not the real one",
        "passes `return_code` on, and reports none where there is none.",
    ),
    ("ends_told_apart", ""): Lesson(
        MISTAKEN_END,
        "Ends look alike that the model must tell apart",
        "names the end in words of its own: crashed, too long, did not compile, sandbox failed.",
    ),
    ("ends_told_apart", "silent"): Lesson(
        OTHER_OUTPUT,
        "A program that prints to stderr only looks like one that printed nothing",
        "shows stderr too, or says that there is some.",
    ),
    ("ends_told_apart", "believed"): Lesson(
        MISTAKEN_END,
        "An answer that contradicts itself is reported as success",
        "believes `status` only if `run_result` says the same.",
    ),
    ("only_transient_retried", ""): Lesson(
        REPEATED,
        "Attempts are made that cannot help, while the sandbox is busy with others",
        "sends nothing again after a 4xx but 408, 425 and 429, and pauses after a 504.",
    ),
    ("only_transient_retried", "by_a_date"): Lesson(
        LOST,
        "A Retry-After with a date makes the client raise: the call is lost",
        "reads Retry-After as seconds or as a date of HTTP.",
    ),
    ("calls_overlap", ""): Lesson(
        LOST,
        "Calls that are made at once wait for each other: the step takes as long as all of them",
        "awaits in asynchronous code, never calls time.sleep there, and holds no lock meanwhile.",
    ),
    ("answers_are_own", ""): Lesson(
        OTHER_OUTPUT,
        "Calls with the same code share one answer",
        "sends every call, also one whose code it has seen.",
    ),
    ("score_follows_the_tests", "numbered"): Lesson(
        SCORED,
        "A lost test makes a number: training takes it for a result",
        "raises, or returns None, if a test was lost, so that the sample is left out.",
    ),
    ("score_follows_the_tests", "misplaced"): Lesson(
        SCORED,
        "Samples of a batch get the scores of others: training learns from chance",
        "returns the scores in the order of its samples, as asyncio.gather and pool.map do.",
    ),
    ("score_follows_the_tests", "uncounted"): Lesson(
        SCORED,
        "A batch gets more or fewer scores than it has samples: the trainer stops or mixes them up",
        "returns a score for each sample, in their order, and None where a test was lost.",
    ),
    ("score_follows_the_tests", "mistaken"): Lesson(
        SCORED,
        "Wrong answers that look nearly right are scored as right",
        "compares whole outputs; only blanks at the end may differ.",
    ),
    ("score_follows_the_tests", "excused"): Lesson(
        SCORED,
        "Solutions that fail after they printed the right output are scored as right",
        "looks at the status and the exit code too: only a program that ended well can be right.",
    ),
    ("score_follows_the_tests", "unrecognised"): Lesson(
        SCORED,
        "Right answers are scored as wrong",
        "sends and compares text in UTF-8, with all its lines.",
    ),
    ("wordings_accepted", ""): Lesson(
        UNREAD,
        "There are wordings that nobody has accepted yet",
        "has wordings that a person has read: accept them with --baseline FILE --update.",
    ),
}  # fmt: skip
"""By promise and kind; an empty kind stands for all others of the promise."""

FAILURE_AS_END = Lesson(
    SCORED,
    "A sandbox that fails looks like a program that {looks} ({often}): such samples are scored as "
    "wrong answers",
    "raises, or says in words of its own that the sandbox failed; the sample is then left out.",
)
CRASH_AS_SUCCESS = Lesson(
    MISTAKEN_END,
    "A program that {looks} looks like one that succeeded ({often})",
    "tells the end of every program that did not succeed, with stderr and exit code.",
)
PROGRAMS_ALIKE = Lesson(
    MISTAKEN_END,
    "Programs that fail in different ways look alike ({looks}): the model cannot learn which",
    "tells a crash, a time limit and a compiler that refuses in words of their own.",
)
FAILURES_ALIKE = Lesson(
    LOST,
    "Failures that want different reactions look alike: {looks}",
    "looks at the HTTP status first: 429 wants patience, 504 may have run the program.",
)
EARLIER_LOOP = Lesson(
    LOST,
    "The client keeps a session of an event loop that has ended (each scenario has its own loop)",
    "makes its session in the loop that uses it, not when its module is imported.",
)
RETRY = Lesson(
    ADVICE,
    "One failed attempt loses the call: a retry would have saved {saved} of {of}",
    "tries again after 429, 503 and lost connections, a few times, with growing pauses; after a "
    "504 too, if a program may run twice.",
)


def lesson_of(promise: str, kind: str) -> Lesson:
    """Return what a finding means; a promise of which nothing is written is shown by its
    sentence."""
    return LESSONS.get((promise, kind)) or LESSONS.get((promise, "")) or _unwritten(promise)


def _unwritten(promise: str) -> Lesson:
    return Lesson(UNTRUE, f"{promise} is broken", "keeps this promise: see docs/judge.md.")
