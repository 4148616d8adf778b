//! Retention: the publication's figure, its steps against a plain model, and warm programs.

mod checks;
mod figure;
mod life;
mod machine;
mod model;
mod steps;
mod warm;
mod world;
