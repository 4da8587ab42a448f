// The progress of a job, or of an attack (data-follow), as it happens. Without this file the page loads itself again every few seconds.

import { call } from "./call.js";

const FINISHED = ["done", "refused", "failed", "cancelled", "interrupted"];
const box = document.querySelector("[data-job]");

const sleep = (ms) => new Promise((resolve) => window.setTimeout(resolve, ms));

async function follow() {
  const bar = box.querySelector("progress");
  const stage = box.querySelector("[data-stage]");
  const state = box.querySelector("[data-state]");
  const before = state.textContent.trim();
  for (let wait = 1; ; ) {
    try {
      const answer = await call(box.dataset.follow ?? `/api/jobs/${box.dataset.job}?wait=2`);
      const job = answer.attack ?? answer;
      wait = 1;
      const moved = FINISHED.includes(job.state) || [before, job.state].includes("checking") || before === "waiting";
      if (job.state !== before && moved) return window.location.reload();
      if (job.state !== state.textContent.trim()) state.textContent = job.state;
      if (bar && job.progress > 0) bar.value = job.progress;
      const words = job.stage && job.stage !== job.state ? job.stage : job.state === "queued" ? "waiting for a worker" : "";
      if (stage.textContent !== words) stage.textContent = words; // said aloud only when it changes
    } catch (problem) {
      if (problem.status >= 400 && problem.status < 500 && problem.status !== 429) {
        await sleep(5000); // signed out, perhaps: the page itself will say so
        return window.location.reload();
      }
      wait = Math.min(wait * 2, 30);
    }
    await sleep(before === "checking" ? 15000 : wait * (box.dataset.follow ? 1500 : 700)); // people take longer than workers
  }
}

if (box) follow();
