#![no_main]
nicstripe_fuzz::target!(nicstripe::fuzz::records);
