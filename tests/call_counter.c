/* Preloaded into a process of its own: counts allocations and uses of the interpreter lock, on all threads. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdatomic.h>
#include <stddef.h>

extern void *__libc_malloc(size_t);
extern void *__libc_calloc(size_t, size_t);
extern void *__libc_realloc(void *, size_t);
extern void *__libc_memalign(size_t, size_t);

static atomic_long allocations, releases, returns, ensures;

long allocated(void) { return atomic_load(&allocations); }
long released(void) { return atomic_load(&releases); }
long returned(void) { return atomic_load(&returns); }
long ensured(void) { return atomic_load(&ensures); }

void *malloc(size_t size)
{
    atomic_fetch_add(&allocations, 1);
    return __libc_malloc(size);
}

void *calloc(size_t count, size_t size)
{
    atomic_fetch_add(&allocations, 1);
    return __libc_calloc(count, size);
}

void *realloc(void *old, size_t size)
{
    atomic_fetch_add(&allocations, 1);
    return __libc_realloc(old, size);
}

int posix_memalign(void **place, size_t alignment, size_t size)
{
    atomic_fetch_add(&allocations, 1);
    *place = __libc_memalign(alignment, size);
    return *place == NULL ? 12 /* ENOMEM */ : 0;
}

void *aligned_alloc(size_t alignment, size_t size)
{
    atomic_fetch_add(&allocations, 1);
    return __libc_memalign(alignment, size);
}

void *PyEval_SaveThread(void)
{
    atomic_fetch_add(&releases, 1);
    return ((void *(*)(void))dlsym(RTLD_NEXT, "PyEval_SaveThread"))();
}

void PyEval_RestoreThread(void *state)
{
    atomic_fetch_add(&returns, 1);
    ((void (*)(void *))dlsym(RTLD_NEXT, "PyEval_RestoreThread"))(state);
}

int PyGILState_Ensure(void)
{
    atomic_fetch_add(&ensures, 1);
    return ((int (*)(void))dlsym(RTLD_NEXT, "PyGILState_Ensure"))();
}

/* Bodies. */
void range_body(long long start, long long stop, void *data)
{
    atomic_fetch_add((atomic_llong *)data, stop - start);
}

void index_body(long long index, void *data)
{
    (void)index;
    atomic_fetch_add((atomic_llong *)data, 1);
}
