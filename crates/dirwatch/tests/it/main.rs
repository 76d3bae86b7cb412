//! Watches on real folders, on disk and in memory.

mod churn;
mod files;
mod fixture;
mod overflow;
mod random;
mod root;
mod tree;
