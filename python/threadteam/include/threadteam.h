/* Bodies of threadteam sections, from C and C++ extensions.
 *
 * A body runs on several threads at once and without the interpreter lock: it must not touch Python objects, and it must
 * not throw. Return the capsule to Python, where every section takes it as its body:
 *
 *     static void scale(int64_t start, int64_t stop, void *data) { ... }
 *
 *     PyObject *body = threadteam_range_body(scale, data);   // exec.for_ranges(length, grain, body)
 *
 * `data` is not owned by the capsule: it must stay valid as long as the capsule is used, and threadteam.native(body, data)
 * overrides it. Include Python.h first.
 */
#ifndef THREADTEAM_H
#define THREADTEAM_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* For Exec.for_ranges: the items start <= i < stop. */
typedef void (*threadteam_range_function)(int64_t start, int64_t stop, void *data);

/* For Exec.fork, Exec.fork_sized, Exec.broadcast and TeamExec.run: the job or participant `index`. */
typedef void (*threadteam_index_function)(int64_t index, void *data);

#define THREADTEAM_RANGE_BODY "threadteam.range_body"
#define THREADTEAM_INDEX_BODY "threadteam.index_body"

#ifdef Py_PYTHON_H

static inline PyObject *threadteam_capsule_(void *function, const char *name, void *data)
{
    PyObject *capsule = PyCapsule_New(function, name, NULL);
    if (capsule != NULL && PyCapsule_SetContext(capsule, data) != 0) {
        Py_DECREF(capsule);
        return NULL;
    }
    return capsule;
}

/* A new reference, or NULL with an exception set. */
static inline PyObject *threadteam_range_body(threadteam_range_function function, void *data)
{
    return threadteam_capsule_((void *)function, THREADTEAM_RANGE_BODY, data);
}

/* A new reference, or NULL with an exception set. */
static inline PyObject *threadteam_index_body(threadteam_index_function function, void *data)
{
    return threadteam_capsule_((void *)function, THREADTEAM_INDEX_BODY, data);
}

#endif /* Py_PYTHON_H */

#ifdef __cplusplus
}
#endif

#endif /* THREADTEAM_H */
