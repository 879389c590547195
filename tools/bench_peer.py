"""llama.cpp's speed on this machine, by its Python package: one JSON line. Run with build/peers/bin/python.

    bench_peer.py MODEL THREADS PREFILL_TOKENS OUTPUT_TOKENS BATCH
"""
import ctypes
import json
import sys
import time

import llama_cpp


@llama_cpp.llama_log_callback
def silent(level, text, data):
    del level, text, data


def main():
    model_path, threads, prefill, outputs, batch_size = sys.argv[1], *map(int, sys.argv[2:6])
    llama_cpp.llama_log_set(silent, ctypes.c_void_p(0))
    llama_cpp.llama_backend_init()
    model = llama_cpp.llama_model_load_from_file(model_path.encode(), llama_cpp.llama_model_default_params())
    params = llama_cpp.llama_context_default_params()
    params.n_ctx, params.n_batch, params.n_ubatch = 8192, 512, 512
    params.n_seq_max = batch_size
    params.n_threads = params.n_threads_batch = threads
    context = llama_cpp.llama_init_from_model(model, params)
    memory = llama_cpp.llama_get_memory(context)
    batch = llama_cpp.llama_batch_init(512, 0, 1)

    def decode(tokens):
        """tokens: (token, position, sequence, wants logits)"""
        batch.n_tokens = len(tokens)
        for i, (token, position, sequence, logits) in enumerate(tokens):
            batch.token[i], batch.pos[i], batch.n_seq_id[i] = token, position, 1
            batch.seq_id[i][0], batch.logits[i] = sequence, logits
        if llama_cpp.llama_decode(context, batch) != 0:
            sys.exit("bench_peer: llama_decode failed")
        llama_cpp.llama_synchronize(context)

    def prefill_rate():
        llama_cpp.llama_memory_clear(memory, True)
        start = time.perf_counter()
        decode([(100 + i, i, 0, i == prefill - 1) for i in range(prefill)])
        return prefill / (time.perf_counter() - start)

    def decode_rate(sequences):
        llama_cpp.llama_memory_clear(memory, True)
        for sequence in range(sequences):
            decode([(100 + i, i, sequence, i == 15) for i in range(16)])
        start = time.perf_counter()
        for step in range(outputs):
            decode([(200 + step, 16 + step, sequence, True) for sequence in range(sequences)])
        return sequences * outputs / (time.perf_counter() - start)

    prefill_rate()
    print(json.dumps({
        "prefill": max(prefill_rate() for _ in range(3)),
        "decode": max(decode_rate(1) for _ in range(3)),
        "decode_batch": max(decode_rate(batch_size) for _ in range(3)),
    }))


if __name__ == "__main__":
    main()
