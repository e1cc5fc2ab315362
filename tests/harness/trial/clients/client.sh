#!/usr/bin/env bash
# A client of curl and jq with ten lines of glue. PLANTED=code adds a line to every program.
echo '{"takes": ["language", "stdin", "timeout", "default_timeout", "compile_timeout"]}'
while IFS= read -r line; do
  planted='.'; [ "$PLANTED" = code ] && planted='.code += "\n"'
  body=$(jq -c "{code, language, stdin, run_timeout: .timeout, compile_timeout} | $planted" <<<"$line")
  answer=$(curl -sf --max-time 15 --retry 1 --retry-delay 1 -H 'Content-Type: application/json' -d @- "$SANDBOX_FUSION_URL/run_code" <<<"$body") ||
    answer="{\"failed\": \"curl exited with code $?\"}"
  jq -c --argjson call "$(jq .call <<<"$line")" '{call: $call} +
    if .failed then {raised: .failed}
    elif .status == "SandboxError" then {raised: ("sandbox error: " + .message)}
    else {status, compile_result, run_result} end' <<<"$answer" || jq -c '{call, raised: "the answer is not JSON"}' <<<"$line"
done
