//! The store: operations on keys, for any thread.

use core::ops::Bound::{Excluded, Included, Unbounded};
use core::time::Duration;
use std::path::PathBuf;
use std::sync::Arc;

use farside::blocking::{Session, SharedStore, Walk};
use farside::{Condition, Error, EvictionPolicy, Expiry, IndexKind, Lifetime, Options, SetOptions, after, with_prefix};
use pyo3::exceptions::{PyKeyError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList, PyTuple};

use crate::bytes::{Bytes, Target};
use crate::error::exception;
use crate::lock::{Lock, LockHolder};
use crate::scan::{Scan, Wanted};
use crate::transaction::Transaction;

/// Values of more bytes are stored, and buffers of more bytes are filled, without the interpreter's lock: the copy takes longer than
/// giving the lock back and taking it again.
const SHORT_BYTES: usize = 16 << 10;
/// After how many keys of many that are read others may have the interpreter's lock.
const KEYS_IN_A_ROW: usize = 512;

/// An open store, for any thread. Keys and values are bytes; text is stored as UTF-8.
#[pyclass(frozen, weakref, module = "farside")]
pub(crate) struct Store {
    shared: Arc<SharedStore>,
    is_mapped: bool,
    /// What opens it again, in another process.
    arguments: Py<PyDict>,
    location: Option<String>,
}

/// Seconds, or a `datetime.timedelta`.
pub(crate) fn duration(time: &Bound<'_, PyAny>) -> PyResult<Duration> {
    if let Ok(duration) = time.extract::<Duration>() {
        return Ok(duration);
    }
    let seconds: f64 = time.extract().map_err(|_| wrong_time(time))?;
    Duration::try_from_secs_f64(seconds).map_err(|_| wrong_time(time))
}

fn wrong_time(time: &Bound<'_, PyAny>) -> PyErr {
    PyValueError::new_err(format!(
        "`{time}` is no time: write seconds, 0 or more, or a datetime.timedelta"
    ))
}

fn wrong_bytes(name: &str, count: &Bound<'_, PyAny>) -> PyErr {
    PyTypeError::new_err(format!("`{name}` is a number of bytes, such as 1 << 30, not `{count}`"))
}

pub(crate) fn set_options(ttl: Option<&Bound<'_, PyAny>>, if_absent: bool, if_present: bool) -> PyResult<SetOptions> {
    let condition = match (if_absent, if_present) {
        (false, false) => Condition::Always,
        (true, false) => Condition::IfAbsent,
        (false, true) => Condition::IfPresent,
        (true, true) => return Err(PyValueError::new_err("`if_absent` and `if_present` exclude each other")),
    };
    let expiry = match ttl {
        Some(ttl) => after(duration(ttl)?),
        None => Expiry::default(),
    };
    Ok(SetOptions {
        condition,
        expiry,
        returns_old: false,
    })
}

/// What somebody says about where the memory is and how it is used.
fn options(location: Option<&str>, given: &Bound<'_, PyDict>) -> PyResult<Options> {
    let bytes = |name| {
        let count = given.get_item(name)?;
        let count = count.map(|count| count.extract::<u64>().map_err(|_| wrong_bytes(name, &count)));
        count.transpose()
    };
    let text = |name| given.get_item(name)?.map(|text| text.extract::<String>()).transpose();
    let time = |name| given.get_item(name)?.map(|time| duration(&time)).transpose();
    let wrong = |error: Error| exception(&error);

    let memory = bytes("memory")?;
    let is_pool = |text: &str| ["shm:", "tcp:", "rdma:"].iter().any(|fabric| text.starts_with(fabric));
    let mut options = match (location, memory) {
        (Some(nodes), None) if is_pool(nodes) => Options::pool(nodes).map_err(wrong)?,
        (Some(nodes), Some(_)) if is_pool(nodes) => {
            let text = format!("`memory` is for new memory, and `{nodes}` names what is there");
            return Err(PyValueError::new_err(text));
        }
        (Some(path), Some(bytes)) => Options::segment(path, bytes),
        (Some(path), None) => Options::pool(&format!("shm:{path}")).map_err(wrong)?,
        (None, Some(bytes)) => Options::anonymous(bytes),
        (None, None) => {
            return Err(PyTypeError::new_err(
                "where is the memory? Name a segment file, or nodes such as \"tcp:10.0.0.7:7380\", or say with `memory` how many \
                 bytes this process wants for itself",
            ));
        }
    };
    if let Some(name) = text("index")? {
        let kind = IndexKind::by_name(&name).ok_or_else(|| {
            let known: Vec<_> = IndexKind::ALL.iter().map(|&(_, name, _)| name).collect();
            PyValueError::new_err(format!("there is no index `{name}`; there are: {}", known.join(", ")))
        })?;
        options = options.index(kind);
    }
    if let Some(path) = given.get_item("secret_file")? {
        options = options.secret_file(path.extract::<PathBuf>()?).map_err(wrong)?;
    }
    if let Some(timeout) = time("timeout")? {
        options = options.timeout(timeout);
    }
    if let Some(bytes) = bytes("memory_max")? {
        options = options.memory_max(bytes);
    }
    if let Some(name) = text("eviction")? {
        let policy = EvictionPolicy::by_name(&name).ok_or_else(|| {
            let known = EvictionPolicy::ALL.map(|(_, name)| name).join(", ");
            PyValueError::new_err(format!("there is no eviction policy `{name}`; there are: {known}"))
        })?;
        options = options.eviction(policy);
    }
    if let Some(count) = given.get_item("eviction_samples")? {
        options = options.eviction_samples(count.extract()?);
    }
    if let Some(owner) = text("owner")? {
        options = options.owner(owner);
    }
    if let Some(lease) = time("lock_lease")? {
        options = options.lock_lease(lease);
    }
    Ok(options)
}

impl Store {
    /// Carries out what may take long, or waits.
    fn long<R: Send>(
        &self,
        py: Python<'_>,
        operation: impl FnOnce(&mut Session) -> Result<R, Error> + Send,
    ) -> PyResult<R> {
        let result = py.detach(|| self.shared.with(operation));
        result.map_err(|error| exception(&error))
    }

    /// Carries out what takes less than a microsecond over mapped memory.
    #[inline]
    fn short<R: Send>(
        &self,
        py: Python<'_>,
        operation: impl FnOnce(&mut Session) -> Result<R, Error> + Send,
    ) -> PyResult<R> {
        if !self.is_mapped {
            return self.long(py, operation);
        }
        self.shared.with(operation).map_err(|error| exception(&error))
    }

    fn read<'py>(&self, py: Python<'py>, key: &Bound<'_, PyAny>) -> PyResult<Option<Bound<'py, PyBytes>>> {
        let key = Bytes::of(key)?;
        let key = key.as_ref();
        if self.is_mapped {
            let value = self.shared.with(|session| {
                let value = session.get(key)?;
                Ok(value.map(|value| PyBytes::new(py, value)))
            });
            return value.map_err(|error| exception(&error));
        }
        let value = self.long(py, |session| Ok(session.get(key)?.map(<[u8]>::to_vec)))?;
        Ok(value.map(|value| PyBytes::new(py, &value)))
    }

    fn write(&self, py: Python<'_>, key: &[u8], value: &[u8], options: SetOptions) -> PyResult<bool> {
        let is_plain = options == SetOptions::default();
        let write = |session: &mut Session| match is_plain {
            true => session.put(key, value).map(|()| true),
            false => Ok(session.set(key, value, options)?.is_stored),
        };
        match value.len() <= SHORT_BYTES {
            true => self.short(py, write),
            false => self.long(py, write),
        }
    }

    fn remove(&self, py: Python<'_>, key: &Bound<'_, PyAny>) -> PyResult<bool> {
        let key = Bytes::of(key)?;
        let key = key.as_ref();
        self.short(py, |session| session.delete(key))
    }

    /// A walk over a range of keys, or over all.
    fn walk(
        &self,
        wanted: Wanted,
        prefix: Option<&Bound<'_, PyAny>>,
        start: Option<&Bound<'_, PyAny>>,
        end: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Scan> {
        let copy = |object: &Bound<'_, PyAny>| -> PyResult<Vec<u8>> { Ok(Bytes::of(object)?.as_ref().to_vec()) };
        let bytes = |object: Option<&Bound<'_, PyAny>>| object.map(copy).transpose();
        let (prefix, start, end) = (bytes(prefix)?, bytes(start)?, bytes(end)?);
        let walk = match (prefix, start, end) {
            (None, None, None) => {
                let index = self.shared.index().map_err(|error| exception(&error))?;
                Walk::all(index)
            }
            (Some(prefix), None, None) => Walk::over(&with_prefix(&prefix)),
            (None, start, end) => {
                let from = start.map_or(Unbounded, Included);
                Walk::over(&(from, end.map_or(Unbounded, Excluded)))
            }
            (Some(_), ..) => {
                return Err(PyValueError::new_err(
                    "a range has a prefix, or a start and an end, not both",
                ));
            }
        };
        Ok(Scan::new(Arc::clone(&self.shared), walk, wanted))
    }

    /// Reads many keys; gives each value, or nothing, to `visit`.
    fn visit<'a>(
        &self,
        py: Python<'_>,
        keys: &[Bytes<'a>],
        mut visit: impl FnMut(Option<&[u8]>) -> PyResult<()>,
    ) -> PyResult<()> {
        if self.is_mapped {
            for keys in keys.chunks(KEYS_IN_A_ROW) {
                let mut failed = Ok(());
                let visited = self.shared.with(|session| {
                    session.visit_many(keys, |_, value| {
                        if failed.is_ok() {
                            failed = visit(value);
                        }
                    })
                });
                visited.map_err(|error| exception(&error))?;
                failed?;
                if keys.len() == KEYS_IN_A_ROW {
                    py.detach(|| ());
                    py.check_signals()?;
                }
            }
            return Ok(());
        }
        let (mut values, mut places) = (Vec::new(), Vec::new());
        let (values_read, places_read) = (&mut values, &mut places);
        self.long(py, |session| session.get_many_into(keys, values_read, places_read))?;
        for place in places {
            visit(place.map(|place| &values[place]))?;
        }
        Ok(())
    }
}

/// The objects of an iterable. A tuple does not change, so each need not be held by itself; to make one of a list takes no call for each.
fn all_of<'py>(objects: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyTuple>> {
    let tuple = objects.py().get_type::<PyTuple>().call1((objects,))?;
    Ok(tuple.cast_into()?)
}

#[pymethods]
impl Store {
    #[new]
    #[pyo3(signature = (location = None, **options))]
    fn new(py: Python<'_>, location: Option<PathBuf>, options: Option<&Bound<'_, PyDict>>) -> PyResult<Self> {
        let given = options.map_or_else(|| Ok(PyDict::new(py)), |given| given.copy())?;
        let known = [
            "memory",
            "index",
            "secret_file",
            "timeout",
            "memory_max",
            "eviction",
            "eviction_samples",
            "owner",
            "lock_lease",
        ];
        for name in given.keys() {
            let name: String = name.extract()?;
            if !known.contains(&name.as_str()) {
                let text = format!("there is no option `{name}`; there are: {}", known.join(", "));
                return Err(PyTypeError::new_err(text));
            }
        }
        for (name, value) in given.copy()? {
            if value.is_none() {
                given.del_item(name)?;
            }
        }
        let location = location.map(|location| {
            let location = location.into_os_string().into_string();
            location.map_err(|_| PyValueError::new_err("the path is no text"))
        });
        let location = location.transpose()?;
        let options = self::options(location.as_deref(), &given)?;
        let opened = py.detach(|| {
            let shared = SharedStore::open(options)?;
            let is_mapped = shared.store()?.is_mapped();
            Ok((Arc::new(shared), is_mapped))
        });
        let (shared, is_mapped) = opened.map_err(|error| exception(&error))?;
        Ok(Self {
            shared,
            is_mapped,
            arguments: given.unbind(),
            location,
        })
    }

    /// The value of a key, or `default` if it is not there.
    #[pyo3(signature = (key, default = None))]
    fn get<'py>(
        &self,
        py: Python<'py>,
        key: &Bound<'py, PyAny>,
        default: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        Ok(self.read(py, key)?.map(Bound::into_any).or(default))
    }

    fn __getitem__<'py>(&self, py: Python<'py>, key: &Bound<'_, PyAny>) -> PyResult<Bound<'py, PyBytes>> {
        self.read(py, key)?
            .ok_or_else(|| PyKeyError::new_err(key.clone().unbind()))
    }

    fn __contains__(&self, py: Python<'_>, key: &Bound<'_, PyAny>) -> PyResult<bool> {
        let key = Bytes::of(key)?;
        let key = key.as_ref();
        self.short(py, |session| Ok(session.lifetime(key)? != Lifetime::Absent))
    }

    /// Reads the value of a key into memory of the caller; returns how many bytes it has, or None if the key is not there.
    fn get_into(&self, py: Python<'_>, key: &Bound<'_, PyAny>, buffer: &Bound<'_, PyAny>) -> PyResult<Option<usize>> {
        let key = Bytes::of(key)?;
        let key = key.as_ref();
        let mut target = Target::of(buffer)?;
        let room = target.len();
        let bytes = target.as_mut();
        let read = |session: &mut Session| session.get_into(key, bytes);
        let length = match room <= SHORT_BYTES {
            true => self.short(py, read),
            false => self.long(py, read),
        }?;
        match length {
            Some(length) if length > room => Err(PyValueError::new_err(format!(
                "the value has {length} bytes, and the buffer room for {room}"
            ))),
            length => Ok(length),
        }
    }

    /// The values of many keys, in their order; None for a key that is not there.
    fn get_many<'py>(&self, py: Python<'py>, keys: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyList>> {
        let keys = all_of(keys)?;
        let keys = Bytes::of_each(&keys)?;
        let mut values = Vec::with_capacity(keys.len());
        self.visit(py, &keys, |value| {
            values.push(value.map(|value| PyBytes::new(py, value)));
            Ok(())
        })?;
        PyList::new(py, values)
    }

    /// Stores a value; returns whether it was stored, which conditions may forbid.
    #[pyo3(signature = (key, value, *, ttl = None, if_absent = false, if_present = false))]
    fn set(
        &self,
        py: Python<'_>,
        key: &Bound<'_, PyAny>,
        value: &Bound<'_, PyAny>,
        ttl: Option<&Bound<'_, PyAny>>,
        if_absent: bool,
        if_present: bool,
    ) -> PyResult<bool> {
        let (key, value) = (Bytes::of(key)?, Bytes::of(value)?);
        let options = set_options(ttl, if_absent, if_present)?;
        self.write(py, key.as_ref(), value.as_ref(), options)
    }

    fn __setitem__(&self, py: Python<'_>, key: &Bound<'_, PyAny>, value: &Bound<'_, PyAny>) -> PyResult<()> {
        let (key, value) = (Bytes::of(key)?, Bytes::of(value)?);
        self.write(py, key.as_ref(), value.as_ref(), SetOptions::default())
            .map(drop)
    }

    /// Stores many items, of a mapping or of pairs; returns how many.
    fn set_many(&self, py: Python<'_>, items: &Bound<'_, PyAny>) -> PyResult<u64> {
        let items = match items.hasattr("items")? {
            true => items.call_method0("items")?,
            false => items.clone(),
        };
        let items: Vec<(Bound<'_, PyAny>, Bound<'_, PyAny>)> =
            items.try_iter()?.map(|item| item?.extract()).collect::<PyResult<_>>()?;
        let items = items
            .iter()
            .map(|(key, value)| Ok((Bytes::of(key)?, Bytes::of(value)?)))
            .collect::<PyResult<Vec<_>>>()?;
        self.long(py, |session| {
            session.put_many(items.iter().map(|(key, value)| (key, value)))
        })
    }

    /// Removes a key; returns whether it was there.
    fn delete(&self, py: Python<'_>, key: &Bound<'_, PyAny>) -> PyResult<bool> {
        self.remove(py, key)
    }

    fn __delitem__(&self, py: Python<'_>, key: &Bound<'_, PyAny>) -> PyResult<()> {
        match self.remove(py, key)? {
            true => Ok(()),
            false => Err(PyKeyError::new_err(key.clone().unbind())),
        }
    }

    /// Removes many keys; returns how many were there.
    fn delete_many(&self, py: Python<'_>, keys: &Bound<'_, PyAny>) -> PyResult<u64> {
        let keys = all_of(keys)?;
        let keys = Bytes::of_each(&keys)?;
        self.long(py, |session| session.delete_many(&keys))
    }

    /// Removes a key; returns the value it had, or `default` if it was not there.
    #[pyo3(signature = (key, default = None))]
    fn pop<'py>(
        &self,
        py: Python<'py>,
        key: &Bound<'py, PyAny>,
        default: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        let key = Bytes::of(key)?;
        let key = key.as_ref();
        let value = self.short(py, |session| session.take(key))?;
        Ok(value.map(|value| PyBytes::new(py, &value).into_any()).or(default))
    }

    /// Adds to a number that is stored as decimal digits; returns the sum. A key that is not there counts as 0.
    #[pyo3(signature = (key, by = 1))]
    fn increment(&self, py: Python<'_>, key: &Bound<'_, PyAny>, by: i64) -> PyResult<i64> {
        let key = Bytes::of(key)?;
        let key = key.as_ref();
        let mut sum = 0;
        let added = self.short(py, |session| {
            session.update(key, |value| {
                let number = match value {
                    Some(value) => core::str::from_utf8(value)
                        .ok()
                        .and_then(|digits| digits.parse::<i64>().ok()),
                    None => Some(0),
                };
                sum = number.and_then(|number| number.checked_add(by)).ok_or(())?;
                Ok(sum.to_string().into_bytes())
            })
        })?;
        let wrong = |()| PyValueError::new_err("the value is no decimal number of 64 bits, or the sum would be none");
        added.map(|()| sum).map_err(wrong)
    }

    /// Stores `value` if the key has the value `expected` (None: if it is not there); returns whether it had. The expiry stays.
    fn compare_and_set(
        &self,
        py: Python<'_>,
        key: &Bound<'_, PyAny>,
        expected: Option<&Bound<'_, PyAny>>,
        value: &Bound<'_, PyAny>,
    ) -> PyResult<bool> {
        let (key, value) = (Bytes::of(key)?, Bytes::of(value)?);
        let (key, value) = (key.as_ref(), value.as_ref());
        let expected = expected.map(Bytes::of).transpose()?;
        let expected = expected.as_ref().map(AsRef::as_ref);
        let changed = self.short(py, |session| {
            session.update(key, |found| match found == expected {
                true => Ok(value.to_vec()),
                false => Err(()),
            })
        })?;
        Ok(changed.is_ok())
    }

    /// Changes when a key expires; returns whether it is there.
    fn expire(&self, py: Python<'_>, key: &Bound<'_, PyAny>, ttl: &Bound<'_, PyAny>) -> PyResult<bool> {
        let key = Bytes::of(key)?;
        let key = key.as_ref();
        let expiry = after(duration(ttl)?);
        self.short(py, |session| session.expire(key, expiry))
    }

    /// Lets a key stay for good; returns whether it is there.
    fn persist(&self, py: Python<'_>, key: &Bound<'_, PyAny>) -> PyResult<bool> {
        let key = Bytes::of(key)?;
        let key = key.as_ref();
        self.short(py, |session| session.expire(key, Expiry::Never))
    }

    /// How many seconds a key stays; math.inf if it stays until somebody deletes it, None if it is not there.
    fn ttl(&self, py: Python<'_>, key: &Bound<'_, PyAny>) -> PyResult<Option<f64>> {
        let key = Bytes::of(key)?;
        let key = key.as_ref();
        Ok(match self.short(py, |session| session.lifetime(key))? {
            Lifetime::Absent => None,
            Lifetime::Unlimited => Some(f64::INFINITY),
            Lifetime::Left(time) => Some(time.as_secs_f64()),
        })
    }

    /// The keys: all of them, those of a range, or those that begin alike; in order if the index has one, as ranges need it.
    #[pyo3(signature = (prefix = None, *, start = None, end = None))]
    fn keys(
        &self,
        prefix: Option<&Bound<'_, PyAny>>,
        start: Option<&Bound<'_, PyAny>>,
        end: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Scan> {
        self.walk(Wanted::Keys, prefix, start, end)
    }

    /// Their values; see keys().
    #[pyo3(signature = (prefix = None, *, start = None, end = None))]
    fn values(
        &self,
        prefix: Option<&Bound<'_, PyAny>>,
        start: Option<&Bound<'_, PyAny>>,
        end: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Scan> {
        self.walk(Wanted::Values, prefix, start, end)
    }

    /// Keys with their values; see keys().
    #[pyo3(signature = (prefix = None, *, start = None, end = None))]
    fn items(
        &self,
        prefix: Option<&Bound<'_, PyAny>>,
        start: Option<&Bound<'_, PyAny>>,
        end: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Scan> {
        self.walk(Wanted::Items, prefix, start, end)
    }

    fn __iter__(&self) -> PyResult<Scan> {
        self.walk(Wanted::Keys, None, None, None)
    }

    fn __len__(&self, py: Python<'_>) -> PyResult<usize> {
        Ok(self.long(py, Session::count)? as usize)
    }

    /// There is a store, with keys or without.
    fn __bool__(&self) -> bool {
        true
    }

    /// Removes every key; returns how many there were.
    fn clear(&self, py: Python<'_>) -> PyResult<u64> {
        self.long(py, Session::clear)
    }

    /// Begins a transaction of this thread.
    fn begin(&self, py: Python<'_>) -> PyResult<Transaction> {
        Transaction::begin(py, Arc::clone(&self.shared))
    }

    /// Calls `body` with a transaction, and makes its changes if it returns; again if others were quicker. Returns what it returns.
    fn transaction<'py>(&self, py: Python<'py>, body: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        let transaction = Bound::new(py, self.begin(py)?)?;
        loop {
            let answer = body.call1((&transaction,));
            let is_over = match &answer {
                Ok(_) => transaction.call_method0("commit")?.is_truthy()?,
                // It may have come of things that do not belong together.
                Err(_) => transaction.call_method0("is_consistent")?.is_truthy()?,
            };
            if is_over {
                transaction.call_method0("rollback")?;
                return answer;
            }
            py.check_signals()?;
        }
    }

    /// A lock with this name, which is not taken yet.
    #[pyo3(signature = (name, *, shared = false, timeout = None))]
    fn lock(&self, name: &Bound<'_, PyAny>, shared: bool, timeout: Option<&Bound<'_, PyAny>>) -> PyResult<Lock> {
        let name = Bytes::of(name)?.as_ref().to_vec();
        let timeout = timeout.map(duration).transpose()?;
        Ok(Lock::new(Arc::clone(&self.shared), name, shared, timeout))
    }

    /// Who holds the lock with this name; None if nobody does.
    fn lock_holder(&self, py: Python<'_>, name: &Bound<'_, PyAny>) -> PyResult<Option<LockHolder>> {
        let name = Bytes::of(name)?;
        let name = name.as_ref();
        let holder = py.detach(|| self.shared.locks()?.holder(name));
        Ok(holder.map_err(|error| exception(&error))?.map(LockHolder::from))
    }

    /// Bytes of the blocks that hold keys and values: what `memory_max` limits.
    #[getter]
    fn memory_held(&self, py: Python<'_>) -> PyResult<u64> {
        self.long(py, Session::memory_held)
    }

    /// Bytes of memory that are in use or reserved by clients, tables included.
    #[getter]
    fn memory_used(&self, py: Python<'_>) -> PyResult<u64> {
        self.long(py, Session::memory_used)
    }

    /// How many keys this opening of the store has evicted.
    #[getter]
    fn evicted(&self) -> PyResult<u64> {
        let store = self.shared.store().map_err(|error| exception(&error))?;
        Ok(store.evicted())
    }

    /// The name of the index that the memory has.
    #[getter]
    fn index(&self) -> PyResult<&'static str> {
        let index = self.shared.index().map_err(|error| exception(&error))?;
        Ok(index.name())
    }

    /// Whether the memory is mapped, so that an operation is a function call; otherwise it is a message over a connection.
    #[getter]
    fn is_mapped(&self) -> bool {
        self.is_mapped
    }

    /// Leaves the store. Nobody can use it by this object any more.
    fn close(&self, py: Python<'_>) {
        py.detach(|| self.shared.close());
    }

    fn __enter__(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
        slf
    }

    fn __exit__(
        &self,
        py: Python<'_>,
        _class: &Bound<'_, PyAny>,
        _value: &Bound<'_, PyAny>,
        _traceback: &Bound<'_, PyAny>,
    ) {
        self.close(py);
    }

    fn __repr__(&self) -> String {
        match &self.location {
            Some(location) => format!("farside.Store({location:?})"),
            None => "farside.Store(anonymous memory)".to_owned(),
        }
    }

    /// Another process opens it for itself.
    fn __reduce__<'py>(slf: &Bound<'py, Self>) -> PyResult<(Bound<'py, PyAny>, Bound<'py, PyTuple>)> {
        let py = slf.py();
        let store = slf.get();
        let Some(location) = store.location.clone() else {
            return Err(PyTypeError::new_err(
                "anonymous memory is this process's alone: name a segment file to share it with others",
            ));
        };
        let open = py.import("farside")?.getattr("_reopen")?;
        let arguments = (slf.get_type(), location, store.arguments.clone_ref(py));
        Ok((open, arguments.into_pyobject(py)?))
    }
}
