//! Watches on real folders, on disk and in memory.

mod bench;
mod churn;
mod files;
mod overflow;
mod random;
mod root;
mod tree;
