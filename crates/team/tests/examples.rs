//! Every example runs. They check what they compute themselves.

use std::collections::BTreeSet;

/// Runs the examples, and names them.
macro_rules! examples {
    ($($name:ident, $path:literal;)*) => {
        $(
            #[path = $path]
            mod $name;
        )*

        /// A test each, so that a failure says which.
        mod runs {
            $(
                #[test]
                fn $name() {
                    super::$name::main().unwrap();
                }
            )*
        }

        const NAMES: &[&str] = &[$(stringify!($name)),*];
    };
}

examples! {
    barriers, "../examples/barriers.rs";
    kernel, "../examples/kernel.rs";
    measure, "../examples/measure.rs";
    nested, "../examples/nested.rs";
}

#[test]
fn no_example_is_left_out() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/examples");
    let there: BTreeSet<String> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path().file_stem().unwrap().to_string_lossy().into_owned())
        .collect();
    assert_eq!(there, NAMES.iter().map(ToString::to_string).collect());
}
