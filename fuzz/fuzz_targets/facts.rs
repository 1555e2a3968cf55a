#![no_main]
nicstripe_fuzz::target!(nicstripe_link::fuzz::facts);
