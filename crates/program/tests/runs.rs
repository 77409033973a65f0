//! Runs: arguments, host steps, failures, cancellation, several threads.

mod common;

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Barrier};

use common::Builder;
use threadteam::Exec;
use threadteam_kernels::{Binary, Unary};
use threadteam_program::{
    Buffer, BufferMut, Description, Dtype, HostCall, HostError, HostInput, HostOutput, Operation, Program, RunContext,
    RunError, Space, StepTime,
};

/// `y = -x + 1` through the arena.
fn negate_and_add() -> Description {
    let mut b = Builder::default();
    let x = b.input(Dtype::Float32, &[4]);
    b.constant(vec![1f32], &[1]);
    let one = b.value(Space::Constant(0), 0, Dtype::Float32, &[4], &[0]);
    let scratch = b.arena(Dtype::Float32, &[4]);
    let y = b.output(Dtype::Float32, &[4]);
    b.step(Operation::Unary(Unary::Neg), &[x], &[scratch]);
    b.step(Operation::Binary(Binary::Add), &[scratch, one], &[y]);
    b.0
}

fn run(program: &Program, x: &[f32], y: &mut [f32], context: RunContext<'_>) -> Result<(), RunError> {
    program.run(Exec::serial(), &[Buffer::from_slice(x)], &mut [BufferMut::from_slice(y)], context)
}

/// A host step from a closure.
struct Host<F>(F);

impl<F> HostCall for Host<F>
where
    F: Fn(&[Option<HostInput<'_>>], &mut [Option<HostOutput<'_>>]) -> Result<(), HostError> + Send + Sync,
{
    fn call(&self, inputs: &[Option<HostInput<'_>>], outputs: &mut [Option<HostOutput<'_>>]) -> Result<(), HostError> {
        self.0(inputs, outputs)
    }
}

/// `y = host(x)` with both reversed in memory.
fn hosted<F>(call: F) -> Program
where
    F: Fn(&[Option<HostInput<'_>>], &mut [Option<HostOutput<'_>>]) -> Result<(), HostError> + Send + Sync + 'static,
{
    let mut b = Builder::default();
    b.input(Dtype::Float32, &[4]);
    b.output(Dtype::Float32, &[4]);
    let x = b.value(Space::Input(0), 12, Dtype::Float32, &[4], &[-1]);
    let y = b.value(Space::Output(0), 12, Dtype::Float32, &[4], &[-1]);
    b.step(Operation::Host(Arc::new(Host(call))), &[x, common::ABSENT], &[y]);
    Program::new(b.0).unwrap()
}

#[test]
fn steps_run_in_order_through_the_arena() {
    let program = Program::new(negate_and_add()).unwrap();
    let mut y = [0.0; 4];
    for x in [[1f32, 2.0, 3.0, 4.0], [0.0, -1.0, -2.0, -3.0]] {
        run(&program, &x, &mut y, RunContext::default()).unwrap();
        assert_eq!(y, x.map(|x| 1.0 - x));
    }
}

#[test]
fn buffers_that_do_not_fit_are_named() {
    let program = Program::new(negate_and_add()).unwrap();
    let error = run(&program, &[0.0; 3], &mut [0.0; 4], RunContext::default()).unwrap_err();
    assert_eq!(error.to_string(), "input x0 has 12 bytes, but 16 are expected");
    let error = run(&program, &[0.0; 4], &mut [0.0; 5], RunContext::default()).unwrap_err();
    assert_eq!(error.to_string(), "output y0 has 20 bytes, but 16 are expected");
    let error = program.run(Exec::serial(), &[], &mut [], RunContext::default()).unwrap_err();
    assert_eq!(error.to_string(), "the program takes 1 inputs, but 0 were given");
    let words = [0u64; 3];
    // SAFETY: 16 bytes from byte 2 of 24.
    let crooked = unsafe { Buffer::from_raw(words.as_ptr().cast::<u8>().add(2), 16) };
    let mut y = [0f32; 4];
    let mut outputs = [BufferMut::from_slice(&mut y)];
    let error = program.run(Exec::serial(), &[crooked], &mut outputs, RunContext::default()).unwrap_err();
    assert_eq!(error.to_string(), "input x0 lies at an address that is no multiple of 4, as float32 needs");
}

#[test]
fn an_arena_the_system_refuses_is_an_error_of_the_run() {
    let mut description = negate_and_add();
    description.arena_bytes = isize::MAX as usize / 2;
    let program = Program::new(description).unwrap();
    let error = run(&program, &[0.0; 4], &mut [0.0; 4], RunContext::default()).unwrap_err();
    assert!(matches!(error, RunError::Memory(_)), "{error}");
}

#[test]
fn a_host_step_sees_indices_in_order_and_fills_its_outputs() {
    let program = hosted(|inputs, outputs| {
        assert!(inputs[1].is_none());
        let mut copy = [0f32; 4];
        assert!(!inputs[0].unwrap().copy_to(&mut BufferMut::from_slice(&mut [0f32; 3])));
        assert!(inputs[0].unwrap().copy_to(&mut BufferMut::from_slice(&mut copy)));
        assert_eq!(copy, [4.0, 3.0, 2.0, 1.0]);
        let output = outputs[0].as_mut().unwrap();
        assert_eq!((output.dtype(), output.dims()), (Dtype::Float32, &[4][..]));
        assert!(output.copy_from(&Buffer::from_slice(&[10f32, 20.0, 30.0, 40.0])));
        Ok(())
    });
    let mut y = [0.0; 4];
    run(&program, &[1.0, 2.0, 3.0, 4.0], &mut y, RunContext::default()).unwrap();
    assert_eq!(y, [40.0, 30.0, 20.0, 10.0]);
}

#[test]
fn a_failing_host_step_is_named_with_its_cause() {
    let program = hosted(|_, _| Err(HostError { message: "no luck".into(), cause: Some("tails".into()) }));
    let error = run(&program, &[0.0; 4], &mut [0.0; 4], RunContext::default()).unwrap_err();
    assert_eq!(error.to_string(), "step 0 (node0): no luck");
    let RunError::Step(error) = error else { panic!("{error}") };
    assert_eq!(error.cause.unwrap().to_string(), "tails");
}

#[test]
fn an_index_out_of_range_is_an_error_of_its_step() {
    let mut b = Builder::default();
    let indices = b.input(Dtype::Int32, &[1]);
    let data = b.constant(vec![1f32, 2.0], &[2]);
    let y = b.output(Dtype::Float32, &[1]);
    b.step(Operation::Gather { axis: 0 }, &[data, indices], &[y]);
    let program = Program::new(b.0).unwrap();
    let mut y = [0f32];
    let mut go = |index: i32| {
        let mut outputs = [BufferMut::from_slice(&mut y)];
        program.run(Exec::serial(), &[Buffer::from_slice(&[index])], &mut outputs, RunContext::default())
    };
    let message = go(2).unwrap_err().to_string();
    assert!(message.starts_with("step 0 (node0): index 2 is out of range"), "{message}");
    go(1).unwrap();
    assert_eq!(y, [2.0]);
}

#[test]
fn a_cancelled_run_names_the_step_it_did_not_start() {
    let cancelled = Arc::new(AtomicBool::new(false));
    let mut description = negate_and_add();
    let flag = cancelled.clone();
    let raise = Host(move |_: &[Option<HostInput<'_>>], _: &mut [Option<HostOutput<'_>>]| {
        flag.store(true, Ordering::Relaxed);
        Ok(())
    });
    description.steps[0].operation = Operation::Host(Arc::new(raise));
    let program = Program::new(description).unwrap();
    let context = RunContext { cancelled: Some(&*cancelled), ..RunContext::default() };
    let error = run(&program, &[0.0; 4], &mut [0.0; 4], context).unwrap_err();
    assert_eq!(error.to_string(), "the run was cancelled before step 1 (node1)");
}

#[test]
fn the_function_between_steps_can_end_the_run() {
    let program = Program::new(negate_and_add()).unwrap();
    let mut calls = 0;
    let mut between = || {
        calls += 1;
        Err("a signal".into())
    };
    let context = RunContext { between: Some(&mut between), ..RunContext::default() };
    let error = run(&program, &[0.0; 4], &mut [0.0; 4], context).unwrap_err();
    assert!(matches!(error, RunError::Interrupted(_)));
    assert_eq!((error.to_string().as_str(), calls), ("a signal", 1));
}

#[test]
fn a_profile_has_one_time_per_step_in_order() {
    let program = Program::new(negate_and_add()).unwrap();
    let mut profile = vec![StepTime { begin: 7, end: 7 }; 9];
    let context = RunContext { profile: Some(&mut profile), ..RunContext::default() };
    run(&program, &[0.0; 4], &mut [0.0; 4], context).unwrap();
    assert_eq!(profile.len(), 2);
    assert!(profile.iter().all(|time| time.begin <= time.end));
    assert!(profile[0].end <= profile[1].begin);
}

#[test]
fn runs_in_flight_together_have_arenas_of_their_own() {
    const RUNS: usize = 4;
    let meeting = Arc::new(Barrier::new(RUNS));
    let mut b = Builder::default();
    let x = b.input(Dtype::Float32, &[4]);
    let (scratch, y) = (b.arena(Dtype::Float32, &[4]), b.output(Dtype::Float32, &[4]));
    b.step(Operation::Copy, &[x], &[scratch]);
    let wait = meeting.clone();
    let meet = Host(move |_: &[Option<HostInput<'_>>], _: &mut [Option<HostOutput<'_>>]| {
        wait.wait();
        Ok(())
    });
    b.step(Operation::Host(Arc::new(meet)), &[], &[]);
    b.step(Operation::Copy, &[scratch], &[y]);
    let program = Program::new(b.0).unwrap();
    let right = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for number in 0..RUNS {
            let (program, right) = (&program, &right);
            scope.spawn(move || {
                let (x, mut y) = ([number as f32; 4], [0.0; 4]);
                run(program, &x, &mut y, RunContext::default()).unwrap();
                right.fetch_add(usize::from(x == y), Ordering::Relaxed);
            });
        }
    });
    assert_eq!(right.into_inner(), RUNS);
    program.release_idle();
    assert!(format!("{program:?}").contains("steps: 3"));
}
