"""The HTTP face of one emulated engine: vLLM 0.32's endpoints over a live engine model."""

import time
import uuid
from collections.abc import Callable

from tradewind.emulator import answers
from tradewind.emulator.answers import ApiError
from tradewind.emulator.faults import EngineFaults
from tradewind.emulator.http import Exchange, Header, HttpRequest
from tradewind.emulator.job import Job
from tradewind.emulator.live import ASLEEP, LiveEngine
from tradewind.emulator.prompt import (
    Generation,
    check_model,
    parse_body,
    parse_generation,
)
from tradewind.emulator.responder import VARY, Responder, request_id_header
from tradewind.emulator.vllm_metrics import VllmMetrics
from tradewind.emulator.vllm_pages import Handler, ServedModel, VllmPages
from tradewind.engine.scheduler import StepOutcome
from tradewind.engine.sequence import SequenceRequest

EVENT_STREAM: Header = ("content-type", "text/event-stream; charset=utf-8")


class VllmApp:
    """Answers requests. The owner builds it first and attaches the engine that it drives."""

    def __init__(self, *, served: ServedModel, metrics: VllmMetrics, engine: LiveEngine) -> None:
        self.draining = False
        self.dead = False
        self.on_idle: Callable[[], None] | None = None  # called when the last request under way is done
        self._served = served
        self._metrics = metrics
        self._engine = engine
        self._jobs: dict[int, tuple[Job, int]] = {}  # seq_id -> (job, choice)
        self._previous_s: dict[int, float] = {}  # seq_id -> time of its last token, or its arrival
        self._paused: list[tuple[Job, Generation]] = []
        self._pause = False
        self._next_seq_id = 0
        self._refusal_credit = 0.0
        self._fingerprint = f"vllm-0.32.0-{uuid.uuid4().hex[:8]}"
        self._responder = Responder(metrics.http)
        self._pages = VllmPages(served=served, metrics=metrics, responder=self._responder)
        self._routes = self._build_routes()
        self.in_flight = 0

    @property
    def loading(self) -> bool:
        """/health 503, and no model listed yet."""
        return self._pages.loading

    @loading.setter
    def loading(self, loading: bool) -> None:
        self._pages.loading = loading

    def set_faults(self, faults: EngineFaults) -> None:
        """What is wrong from now on."""
        self._pages.faults = faults

    # -- for the server -----------------------------------------------------------------------------------------------

    def handle(self, exchange: Exchange) -> None:
        """Answers one request, now or when its tokens are there."""
        request = exchange.request
        methods = self._routes.get(request.path)
        if methods is None:
            self._responder.send(exchange, 404, answers.NOT_FOUND, handler="none")
        elif request.method not in methods:
            allow = ("allow", ", ".join(sorted(methods)))
            self._responder.send(exchange, 405, answers.METHOD_NOT_ALLOWED, before=(allow,))
        else:
            try:
                methods[request.method](exchange)
            except ApiError as error:
                self._responder.send(exchange, error.status, error.body())

    # -- for the engine -----------------------------------------------------------------------------------------------

    def on_step(self, outcome: StepOutcome) -> None:
        """Hands the tokens of one step to their requests, one write per request."""
        self._metrics.observe_step(outcome, self._previous_s)
        touched: dict[int, Job] = {}
        for sequence in outcome.emitted:
            seq_id = sequence.request.seq_id
            job, index = self._jobs[seq_id]
            assert sequence.last_token_s is not None
            self._previous_s[seq_id] = sequence.last_token_s
            job.on_token(index, sequence)
            touched[id(job)] = job
        for sequence in outcome.finished:
            job, _ = self._jobs[sequence.request.seq_id]
            self._metrics.observe_finished(
                sequence,
                arrival_s=job.arrival_s,
                choices=job.generation.choices,
                max_tokens=job.generation.output_tokens,
            )
            self._forget(sequence.request.seq_id)
        for job in touched.values():
            self._flush(job)

    def abort_all(self) -> None:
        """Ends every request under way with finish_reason "abort" (pause, sleep)."""
        jobs: dict[int, Job] = {}
        for sequence in self._engine.model.abort_all(now_s=time.monotonic()):
            job, index = self._jobs[sequence.request.seq_id]
            self._metrics.observe_finished(
                sequence,
                arrival_s=job.arrival_s,
                choices=job.generation.choices,
                max_tokens=job.generation.output_tokens,
            )
            self._forget(sequence.request.seq_id)
            job.on_abort(index, sequence)
            jobs[id(job)] = job
        for job in jobs.values():
            self._flush(job)

    def fail_all(self) -> None:
        """The engine core has died: every request under way ends with an error."""
        self.dead = True
        self._engine.model.abort_all(now_s=time.monotonic())
        jobs = [job for job, _ in self._jobs.values()] + [job for job, _ in self._paused]
        self._paused = []
        for job in {id(job): job for job in jobs}.values():
            job.fail(answers.engine_dead())
            self._responder.count(job.exchange, 200 if job.generation.stream else 500, 0)
            self._job_over()
        self._jobs.clear()
        self._previous_s.clear()

    # -- routes -------------------------------------------------------------------------------------------------------

    def _build_routes(self) -> dict[str, dict[str, Handler]]:
        return self._pages.routes() | {
            "/v1/chat/completions": {"POST": lambda exchange: self._generate(exchange, chat=True)},
            "/v1/completions": {"POST": lambda exchange: self._generate(exchange, chat=False)},
            "/health": {"GET": self._health},
            "/ping": {"GET": self._health, "POST": self._health},
            "/load": {"GET": lambda exchange: self._responder.json(exchange, {"server_load": self.in_flight})},
            "/pause": {"POST": self._pause_engine},
            "/resume": {"POST": self._resume},
            "/is_paused": {"GET": lambda exchange: self._responder.json(exchange, {"is_paused": self._pause})},
            "/sleep": {"POST": self._sleep},
            "/wake_up": {"POST": self._wake_up},
            "/is_sleeping": {"GET": lambda exchange: self._responder.json(exchange, {"is_sleeping": self._asleep})},
            "/reset_prefix_cache": {"POST": self._reset_prefix_cache},
        }

    def _generate(self, exchange: Exchange, *, chat: bool) -> None:
        request = exchange.request
        generation = self._check(request, chat=chat)
        answer_id = request.headers.get("x-request-id") or generation.request_id or uuid.uuid4().hex[:16]
        job = Job(
            exchange=exchange,
            generation=generation,
            answer_id=f"{'chatcmpl' if chat else 'cmpl'}-{answer_id}",
            model=generation.model or self._served.names[0],
            fingerprint=self._fingerprint,
            arrival_s=request.received_s,
            headers=self._generation_headers(request, stream=generation.stream),
            block_size_tokens=self._served.block_size_tokens,
        )
        exchange.on_gone = lambda: self._client_gone(job)
        self.in_flight += 1
        job.start()
        if self._pause:
            self._paused.append((job, generation))
        else:
            self._submit(job, generation)

    def _check(self, request: HttpRequest, *, chat: bool) -> Generation:
        if self.dead:
            raise answers.engine_dead()
        if self._pages.loading:
            raise ApiError(503, "The model is still loading.", "Service Unavailable")
        if self.draining:
            raise answers.draining()
        body = parse_body(request.headers.get("content-type", ""), request.body)
        check_model(body, self._served.names, chat=chat)
        model = self._engine.model
        generation = parse_generation(
            body,
            chat=chat,
            max_model_len=self._served.limit(self._pages.faults),
            kv_capacity_tokens=model.pool.blocks * model.pool.block_size_tokens,
            block_size_tokens=self._served.block_size_tokens,
        )
        self._refuse(generation)
        limit = self._served.max_num_queued_reqs
        if limit and self.in_flight >= limit:
            self._metrics.rejections["max_num_queued_reqs"] += 1
            raise answers.queue_full()
        return generation

    def _refuse(self, generation: Generation) -> None:
        refusal = self._pages.faults.refuse
        if refusal is None or not refusal.min_prompt_tokens <= generation.prompt_tokens <= refusal.max_prompt_tokens:
            return
        if refusal.stream is not None and refusal.stream is not generation.stream:
            return
        self._refusal_credit += refusal.share
        if self._refusal_credit < 1.0:
            return
        self._refusal_credit -= 1.0
        kind = "BadRequestError" if refusal.status < 500 else "InternalServerError"
        raise ApiError(refusal.status, refusal.message, kind)

    def _submit(self, job: Job, generation: Generation) -> None:
        for choice in range(generation.choices):
            seq_id = self._next_seq_id
            self._next_seq_id += 1
            self._jobs[seq_id] = (job, choice)
            self._previous_s[seq_id] = job.arrival_s
            sequence = self._engine.submit(
                SequenceRequest(
                    seq_id=seq_id,
                    prompt_tokens=generation.prompt_tokens,
                    output_tokens=generation.output_tokens,
                    finish_reason="stop" if generation.stops else "length",
                    priority=generation.priority,
                    block_hashes=generation.block_hashes,
                ),
                now_s=time.monotonic(),
            )
            job.sequences.append(sequence)

    def _health(self, exchange: Exchange) -> None:
        self._responder.send(exchange, 503 if self._pages.loading or self.dead else 200, b"")

    def _pause_engine(self, exchange: Exchange) -> None:
        self._pause = True
        self.abort_all()
        self._responder.json(exchange, {"status": "paused"})

    def _resume(self, exchange: Exchange) -> None:
        self._pause = False
        waiting, self._paused = self._paused, []
        self._engine.release(ASLEEP)
        for job, generation in waiting:
            if not job.exchange.done:
                self._submit(job, generation)
        self._responder.json(exchange, {"status": "resumed"})

    @property
    def _asleep(self) -> bool:
        return ASLEEP in self._engine.held

    def _sleep(self, exchange: Exchange) -> None:
        level = 2 if "level=2" in exchange.request.query else 1
        self._metrics.sleep_level = level
        self.abort_all()
        self._engine.hold(ASLEEP)
        self._metrics.sleep_mode.observe("sleep", 0.0)
        self._responder.json(exchange, {"status": "sleeping", "level": level})

    def _wake_up(self, exchange: Exchange) -> None:
        self._metrics.sleep_level = 0
        self._engine.release(ASLEEP)
        self._metrics.sleep_mode.observe("wake_up", 0.0)
        self._responder.json(exchange, {"status": "awake", "tags": None})

    def _reset_prefix_cache(self, exchange: Exchange) -> None:
        self._engine.model.reset_prefix_cache()
        self._responder.send(exchange, 200, b"")

    # -- inside -------------------------------------------------------------------------------------------------------

    def _flush(self, job: Job) -> None:
        over = job.unfinished <= 0
        job.flush()
        if over:
            self._responder.count(job.exchange, 200, 0)
            self._job_over()

    def _client_gone(self, job: Job) -> None:
        now_s = time.monotonic()
        for sequence in job.sequences:
            self._engine.model.cancel(sequence.request.seq_id, now_s=now_s)
            self._forget(sequence.request.seq_id)
        self._paused = [(paused, generation) for paused, generation in self._paused if paused is not job]
        self._responder.count(job.exchange, 200, 0)
        self._job_over()

    def _job_over(self) -> None:
        self.in_flight -= 1
        if self.in_flight == 0 and self.on_idle is not None:
            self.on_idle()

    def _forget(self, seq_id: int) -> None:
        self._jobs.pop(seq_id, None)
        self._previous_s.pop(seq_id, None)

    def _generation_headers(self, request: HttpRequest, *, stream: bool) -> tuple[Header, ...]:
        request_id = request_id_header(request)
        if stream:
            return (EVENT_STREAM, VARY, request_id)
        orca = self._orca(request.headers.get("endpoint-load-metrics-format", ""))
        return (*orca, VARY, request_id)

    def _orca(self, wanted: str) -> tuple[Header, ...]:
        waiting, used = float(self._engine.model.waiting), self._engine.model.kv_used_ratio
        if wanted.lower() == "json":
            named = f'{{"num_requests_waiting": {waiting}, "kv_cache_usage_perc": {used}}}'
            return (("endpoint-load-metrics", f'JSON {{"named_metrics": {named}}}'),)
        if wanted.lower() == "text":
            text = f"named_metrics.kv_cache_usage_perc={used}, named_metrics.num_requests_waiting={waiting}"
            return (("endpoint-load-metrics", f"TEXT {text}"),)
        return ()
