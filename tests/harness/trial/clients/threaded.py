"""A synchronous client of ``requests``. PLANTED=cut drops the end of a long output."""

import os
import time

import requests


def run(code, language="python", stdin=None, run_timeout=8.0):
    body = {"code": code, "language": language, "stdin": stdin, "run_timeout": run_timeout}
    for attempt in range(3):
        try:
            answer = requests.post(
                os.environ["SANDBOX_FUSION_URL"] + "/run_code", json=body, timeout=run_timeout + 20
            )
        except requests.RequestException as error:
            problem = f"no answer: {type(error).__name__}"
            continue
        if answer.status_code == 200:
            return told(answer.json())
        problem = f"status {answer.status_code}"
        if attempt < 2:
            time.sleep(float(answer.headers.get("Retry-After", 0.5)))
    raise RuntimeError(problem)


def told(answer):
    if answer["status"] == "SandboxError":
        raise RuntimeError(f"the sandbox failed: {answer['message']}")
    if answer["run_result"] is None:
        compiled = answer["compile_result"]
        return f"compiler: {compiled['status']}\n{compiled['stdout']}\n{compiled['stderr']}"
    run = answer["run_result"]
    out = run["stdout"] or ""
    if os.environ.get("PLANTED") == "cut":
        out = out[:1000]
    return (
        f"stdout:\n{out}\nstderr:\n{run['stderr'] or ''}\n{run['status']}, code "
        f"{run['return_code']}"
    )
