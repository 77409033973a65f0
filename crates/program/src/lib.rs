//! A flat list of kernel steps over an arena of planned buffers.
