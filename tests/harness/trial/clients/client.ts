// A client in TypeScript with ten lines of glue. PLANTED=first_character loses one.
import { createInterface } from "node:readline";

interface Ask { call: string; code: string; language: string; stdin: string | null; timeout: number; compile_timeout: number }
interface Run { status: string; return_code: number | null; stdout: string | null; stderr: string | null }

const pause = (seconds: number) => new Promise((done) => setTimeout(done, seconds * 1000));

async function post(body: unknown, seconds: number): Promise<any> {
  for (let attempt = 1; ; attempt++) {
    try {
      const signal = AbortSignal.timeout((seconds + 5) * 1000);
      const headers = { "Content-Type": "application/json" };
      const answer = await fetch(`${process.env.SANDBOX_FUSION_URL}/run_code`, { method: "POST", headers, body: JSON.stringify(body), signal });
      if (answer.status === 200) return await answer.json();
      if (attempt === 3) throw new Error(`the sandbox answered ${answer.status}`);
      const after = answer.headers.get("Retry-After") ?? "0.05";
      const seconds_left = (Date.parse(after) - Date.now()) / 1000;
      await pause(isNaN(Number(after)) ? Math.max(0, seconds_left) : Number(after));
    } catch (error) {
      if (attempt === 3) throw new Error(`the sandbox failed: ${error}`);
    }
  }
}

function told(run: Run): object {
  const end = run.status === "TimeLimitExceeded" ? "timed out" : `exited with code ${run.return_code}`;
  const out = (run.stdout ?? "").slice(process.env.PLANTED === "first_character" ? 1 : 0);
  return { text: `${out}\n--- stderr ---\n${run.stderr ?? ""}\n--- ${end} ---`, exit_code: run.return_code };
}

for await (const line of createInterface({ input: process.stdin })) {
  const ask: Ask = JSON.parse(line);
  const body = { code: ask.code, language: ask.language, stdin: ask.stdin, run_timeout: ask.timeout, compile_timeout: ask.compile_timeout };
  let result: object;
  try {
    const answer = await post(body, ask.timeout + ask.compile_timeout);
    if (answer.status === "SandboxError") result = { raised: `SandboxError: ${answer.message}` };
    else if (answer.run_result) result = told(answer.run_result);
    else result = { text: `the compiler failed (${answer.compile_result.status}): ${answer.compile_result.stderr}` };
  } catch (error) {
    result = { raised: String(error) };
  }
  console.log(JSON.stringify({ call: ask.call, ...result }));
}
