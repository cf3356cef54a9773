//! Memory for one future at a time, used again and again.
//!
//! On the path: between an operation that is an ordinary function to its callers and the future that carries it out. A
//! caller that holds a [`Held`] holds two words, whatever the future is, so that the code of the future is compiled once,
//! where it is written; and no operation allocates.

use core::alloc::Layout;
use core::fmt;
use core::future::Future;
use core::marker::PhantomData;
use core::pin::Pin;
use core::ptr::NonNull;
use core::task::{Context, Poll};

use crate::posted::LocalFuture;

/// See the module.
pub struct Frame {
    /// `None` until there was a future. Of the layout `layout`, if that is not empty.
    memory: Option<NonNull<u8>>,
    layout: Layout,
    /// A future is in it. It stays true if a [`Held`] was forgotten, whose memory is then left to it for good, as
    /// pinning promises.
    is_taken: bool,
}

impl Default for Frame {
    fn default() -> Self {
        Self {
            memory: None,
            layout: Layout::new::<()>(),
            is_taken: false,
        }
    }
}

impl fmt::Debug for Frame {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes for a future", self.layout.size())
    }
}

impl Frame {
    /// How many bytes it has.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.layout.size()
    }

    /// Puts a future in the frame.
    #[inline]
    pub fn hold<'f, F: Future + 'f>(&'f mut self, future: F) -> Held<'f, F::Output> {
        let memory = self.memory_for(Layout::new::<F>()).cast::<F>();
        // SAFETY: the memory has room for an F, is aligned for it, and holds no other: `memory_for` gives none that a
        // future is in.
        unsafe { memory.write(future) };
        self.is_taken = true;
        let future: NonNull<dyn Future<Output = F::Output> + 'f> = memory;
        Held(State::Framed(Framed {
            future,
            is_taken: &mut self.is_taken,
            owned: PhantomData,
        }))
    }

    /// Memory of this layout, or more, in which no future is.
    #[inline]
    fn memory_for(&mut self, wanted: Layout) -> NonNull<u8> {
        match self.memory {
            Some(memory)
                if !self.is_taken && self.layout.size() >= wanted.size() && self.layout.align() >= wanted.align() =>
            {
                memory
            }
            _ => self.grow(wanted),
        }
    }

    #[cold]
    fn grow(&mut self, wanted: Layout) -> NonNull<u8> {
        self.free();
        if wanted.size() == 0 {
            self.layout = wanted;
            let dangling = NonNull::without_provenance(core::num::NonZero::<usize>::MIN.saturating_add(wanted.align() - 1));
            self.memory = Some(dangling);
            return dangling;
        }
        // SAFETY: the size is not zero.
        let memory = unsafe { std::alloc::alloc(wanted) };
        let Some(memory) = NonNull::new(memory) else {
            std::alloc::handle_alloc_error(wanted);
        };
        self.layout = wanted;
        self.memory = Some(memory);
        memory
    }

    fn free(&mut self) {
        let memory = self.memory.take();
        if let Some(memory) = memory
            && self.layout.size() > 0
            && !self.is_taken
        {
            // SAFETY: it was allocated with this layout, and no future is in it.
            unsafe { std::alloc::dealloc(memory.as_ptr(), self.layout) };
        }
        self.is_taken = false;
        self.layout = Layout::new::<()>();
    }
}

impl Drop for Frame {
    fn drop(&mut self) {
        self.free();
    }
}

/// What an operation comes to: known already, or under way in a frame or in a box.
#[must_use = "the operation ends when this has been awaited"]
pub struct Held<'f, T>(State<'f, T>);

enum State<'f, T> {
    Done(Option<T>),
    Framed(Framed<'f, T>),
    Boxed(LocalFuture<'f, T>),
}

struct Framed<'f, T> {
    future: NonNull<dyn Future<Output = T> + 'f>,
    is_taken: &'f mut bool,
    owned: PhantomData<dyn Future<Output = T> + 'f>,
}

impl<T> Unpin for Held<'_, T> {}

impl<'f, T> Held<'f, T> {
    /// It is known.
    #[inline]
    pub fn done(output: T) -> Self {
        Self(State::Done(Some(output)))
    }

    /// It is under way, and not often enough for a frame.
    pub fn boxed(future: impl Future<Output = T> + 'f) -> Self {
        Self(State::Boxed(Box::pin(future)))
    }
}

impl<T> Future for Held<'_, T> {
    type Output = T;

    #[inline]
    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<T> {
        match &mut self.get_mut().0 {
            State::Done(output) => Poll::Ready(output.take().expect("a future is not polled after it was ready")),
            // SAFETY: the future is where `hold` has put it, and stays there until it is dropped: nobody else has the
            // pointer, and the frame gives its memory to no other future while `is_taken`.
            State::Framed(framed) => unsafe { Pin::new_unchecked(framed.future.as_mut()) }.poll(context),
            State::Boxed(future) => future.as_mut().poll(context),
        }
    }
}

impl<T> Drop for Framed<'_, T> {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: `hold` has put it there, and it is dropped here alone.
        unsafe { self.future.drop_in_place() };
        *self.is_taken = false;
    }
}

impl<T> fmt::Debug for Held<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0 {
            State::Done(_) => "there",
            State::Framed(_) | State::Boxed(_) => "under way",
        })
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use core::cell::Cell;
    use core::future::{pending, ready};
    use core::pin::pin;
    use core::task::Waker;

    fn now<T>(future: impl Future<Output = T>) -> Option<T> {
        match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(output) => Some(output),
            Poll::Pending => None,
        }
    }

    struct Counts<'c>(&'c Cell<u32>);

    impl Drop for Counts<'_> {
        fn drop(&mut self) {
            self.0.set(self.0.get() + 1);
        }
    }

    #[test]
    fn memory_is_used_again_and_grows() {
        let mut frame = Frame::default();
        assert_eq!(now(frame.hold(ready(7))), Some(7));
        let small = frame.bytes();
        let large = [3_u8; 4096];
        assert_eq!(now(frame.hold(async move { large[17] })), Some(3));
        let grown = frame.bytes();
        assert!(small < 4096 && grown >= 4096, "{small} {grown}");
        assert_eq!(now(frame.hold(ready(8))), Some(8));
        assert_eq!(frame.bytes(), grown);
        assert_eq!(now(frame.hold(async {})), Some(()));
    }

    #[test]
    fn a_future_is_dropped_once_whether_it_has_ended_or_not() {
        let drops = Cell::new(0);
        let mut frame = Frame::default();
        for is_over in [true, false] {
            let counts = Counts(&drops);
            let held = frame.hold(async move {
                let _counts = counts;
                if !is_over {
                    pending::<()>().await;
                }
            });
            assert_eq!(now(held), is_over.then_some(()));
        }
        assert_eq!(drops.get(), 2);
    }

    #[test]
    #[expect(clippy::mem_forget, reason = "that is what is tested")]
    fn the_memory_of_a_forgotten_future_is_not_used_again() {
        let drops = Cell::new(0);
        let mut frame = Frame::default();
        let counts = Counts(&drops);
        core::mem::forget(frame.hold(async move {
            let _counts = counts;
            pending::<()>().await;
        }));
        let first = frame.memory;
        assert_eq!(now(frame.hold(async { Cell::new(1).get() })), Some(1));
        assert_ne!(frame.memory, first);
        drop(frame);
        assert_eq!(drops.get(), 0, "it is there for good");
    }

    #[test]
    fn what_is_known_or_boxed_comes_as_well() {
        assert_eq!(now(Held::done(1)), Some(1));
        assert_eq!(now(Held::boxed(async { 2 })), Some(2));
    }
}
