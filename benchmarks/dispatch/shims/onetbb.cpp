// oneTBB behind C functions: its interface is C++ templates, which Rust cannot call.
//
//     python -m pip install tbb tbb-devel
//     g++ -O2 -std=c++17 -shared -fPIC -I .venv/include benchmarks/dispatch/shims/onetbb.cpp -o out/onetbb.so \
//         -L .venv/lib -ltbb -Wl,-rpath,$PWD/.venv/lib

#include <cstddef>
#include <oneapi/tbb/global_control.h>
#include <oneapi/tbb/parallel_for.h>
#include <oneapi/tbb/partitioner.h>
#include <oneapi/tbb/task_arena.h>

// Calls visit(data) on the calling thread as a participant of an arena of so many threads.
extern "C" void onetbb_with(int threads, void (*visit)(void *), void *data) {
    tbb::global_control limit(tbb::global_control::max_allowed_parallelism, threads);
    tbb::task_arena arena(threads);
    arena.execute([=] { visit(data); });
}

// Calls body once for every number below parts; inside onetbb_with.
extern "C" void onetbb_auto(std::size_t parts, void (*body)(std::size_t)) {
    tbb::parallel_for(std::size_t(0), parts, body);
}

// The same, with the parts dealt out evenly beforehand.
extern "C" void onetbb_static(std::size_t parts, void (*body)(std::size_t)) {
    tbb::parallel_for(std::size_t(0), parts, body, tbb::static_partitioner());
}
