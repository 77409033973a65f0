//! Gather against loops over every index, and its errors.

mod elementwise_support;

use elementwise_support::{at_every_width, indices, input, output, Tensor};
use proptest::collection::vec;
use proptest::prelude::*;
use threadteam::Exec;
use threadteam_kernels::{gather, GatherError, Index};

#[derive(Clone, Debug)]
struct Case {
    data: Vec<usize>,
    indices: Vec<usize>,
    axis: usize,
}

fn case() -> impl Strategy<Value = Case> {
    let extent = prop_oneof![5 => 1usize..5, 1 => Just(17usize), 1 => Just(0usize)];
    (vec(extent.clone(), 1..=4), vec(extent, 0..=4), any::<prop::sample::Index>()).prop_map(
        |(mut data, indices, axis)| {
            let axis = axis.index(data.len());
            data[axis] = data[axis].max(1);
            Case { data, indices, axis }
        },
    )
}

fn check<I: Index + std::fmt::Debug>(
    case: &Case,
    places: &(elementwise_support::Place, elementwise_support::Place, elementwise_support::Place),
    raw: &[i64],
    make: impl Fn(i64) -> I,
    read: impl Fn(I) -> i64,
) {
    let extent = case.data[case.axis] as i64;
    let values: Vec<u32> = (0..4001).collect();
    let given: Vec<I> = raw.iter().map(|v| make(v.rem_euclid(2 * extent) - extent)).collect();
    let data = Tensor::placed(&case.data, &places.1, &values);
    let index = Tensor::placed(&case.indices, &places.2, &given);
    let mut dims = case.data.clone();
    dims.splice(case.axis..=case.axis, case.indices.iter().copied());
    at_every_width(|exec| {
        let mut y = Tensor::placed(&dims, &places.0, &[99_999u32]);
        gather(exec, &data.view(), &index.view(), case.axis, &mut y.view_mut()).unwrap();
        for at in indices(&dims) {
            let after = case.axis + case.indices.len();
            let taken = read(index.at(&at[case.axis..after]));
            let mut from = at[..case.axis].to_vec();
            from.push(taken.rem_euclid(extent) as usize);
            from.extend(&at[after..]);
            assert_eq!(y.at(&at), data.at(&from));
        }
    });
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn gather_equals_a_loop_in_any_layout(
        case in case(), places in (output(), input(), input()), raw in vec(0i64..1000, 1..40), wide: bool,
    ) {
        if wide {
            check(&case, &places, &raw, |v| v, |v| v);
        } else {
            check(&case, &places, &raw, |v| v as i32, i64::from);
        }
    }
}

#[test]
fn an_index_out_of_range_is_named_and_nothing_is_written() {
    let data = Tensor::of(&[3, 2], vec![1, 2, 3, 4, 5, 6]);
    for bad in [3i64, -4, i64::MAX, i64::MIN] {
        let index = Tensor::of(&[3], vec![0, bad, 99]);
        let mut y = Tensor::of(&[3, 2], vec![0; 6]);
        let error = gather(Exec::serial(), &data.view(), &index.view(), 0, &mut y.view_mut()).unwrap_err();
        assert_eq!(error, GatherError { index: bad, extent: 3 });
        assert_eq!(y.memory, [0; 6]);
        assert_eq!(error.to_string(), format!("index {bad} is out of range for an axis of extent 3: give -3 to 2"));
    }
}

#[test]
fn nothing_can_be_taken_from_an_empty_axis() {
    let data = Tensor::of(&[0, 2], Vec::<f32>::new());
    let index = Tensor::of(&[1], vec![0i32]);
    let mut y = Tensor::of(&[1, 2], vec![0f32; 2]);
    let error = gather(Exec::serial(), &data.view(), &index.view(), 0, &mut y.view_mut()).unwrap_err();
    assert_eq!(error.to_string(), "index 0 was given for an axis of extent 0, which has no elements to take");
}
