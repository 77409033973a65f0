//! What runs on a traced pool record about their steps.

mod common;

use std::sync::Arc;

use common::Builder;
use threadteam::trace::{Kind, Trace};
use threadteam::{Exec, Pool};
use threadteam_kernels::Unary;
use threadteam_program::{Buffer, BufferMut, Dtype, Operation, Program, RunContext};

/// `y = -(-x)` through the arena, in steps called node0 and node1.
fn negate_twice() -> Program {
    let mut b = Builder::default();
    let x = b.input(Dtype::Float32, &[4]);
    let scratch = b.arena(Dtype::Float32, &[4]);
    let y = b.output(Dtype::Float32, &[4]);
    b.step(Operation::Unary(Unary::Neg), &[x], &[scratch]);
    b.step(Operation::Unary(Unary::Neg), &[scratch], &[y]);
    Program::new(b.0).unwrap()
}

/// What one run of each program on a traced pool of one thread leaves in the trace.
fn traced(programs: &[Program]) -> Arc<Trace> {
    let pool = Pool::builder().threads(1).build().unwrap();
    let trace = Arc::new(Trace::new(1, 64));
    pool.set_trace(Some(Arc::clone(&trace)));
    for program in programs {
        let mut y = [0f32; 4];
        let (inputs, mut outputs) = ([Buffer::from_slice(&[1f32; 4])], [BufferMut::from_slice(&mut y)]);
        program.run(Exec::new(&pool, 1).unwrap(), &inputs, &mut outputs, RunContext::default()).unwrap();
    }
    trace
}

#[test]
fn a_traced_run_labels_each_step_and_its_end() {
    let trace = traced(&[negate_twice()]);
    let names = trace.label_names();
    let name = |label| names.iter().find(|(known, _)| *known == label).map(|(_, name)| &**name);
    let labels = trace.events().into_iter().filter(|event| event.kind == Kind::Label);
    assert_eq!(labels.map(|event| name(event.value)).collect::<Vec<_>>(), [Some("node0"), Some("node1"), None]);
}

#[test]
fn programs_have_labels_of_their_own() {
    assert_eq!(traced(&[negate_twice(), negate_twice()]).label_names().len(), 4);
}
